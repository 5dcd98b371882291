"""The processes. No arithmetic, no SQL."""
