"""Alembic migrations of the ledger: one change a revision, expand before the deploy, contract after it."""
