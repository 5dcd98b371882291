"""The HTTP door: `/v1/cases` and what hangs on it."""
