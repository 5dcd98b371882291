"""The rules of a case: its state table and what counts as an answer."""
