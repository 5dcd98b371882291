"""Model cards, registry, warm-up and the forward pass: the one torch room."""
