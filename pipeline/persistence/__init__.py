"""The ledger's tables and queries, the waiting line and the upload store."""
