"""The tensor store: one protocol, its backends, and an in-memory double."""
