"""How cases, findings, times and settings look in a terminal."""
