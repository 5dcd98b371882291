"""When a batch fires and who is in it. Pure: told the time, asked for a decision."""
