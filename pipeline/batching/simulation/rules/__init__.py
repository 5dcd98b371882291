"""Who decides in a simulated house: our rule, and the rules of others as we read them."""
