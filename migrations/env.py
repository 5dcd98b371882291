"""How a migration runs: one connection, short locks, and a limit on every statement."""

from alembic import context
from sqlalchemy import NullPool, create_engine, text

from pipeline.persistence.ledger.tables import METADATA

LOCK_TIMEOUT_MS = 2_000
"""A migration that waits for a lock makes everybody behind it wait: it gives up first."""
STATEMENT_TIMEOUT_MS = 60_000
MIGRATION_LOCK = 0x5EC0DEAD
"""Advisory lock: of two processes that start together, one migrates and the other waits for it."""


def run() -> None:
    """Bring the database that the configuration names to the wanted revision."""
    # Without a pool the connection ends with the block, and with it the advisory lock of a migration that failed.
    engine = create_engine(context.config.attributes["url"], poolclass=NullPool)
    with engine.connect() as connection:
        connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": MIGRATION_LOCK})
        connection.execute(text(f"SET lock_timeout = {LOCK_TIMEOUT_MS}"))
        connection.execute(text(f"SET statement_timeout = {STATEMENT_TIMEOUT_MS}"))
        connection.commit()
        context.configure(connection=connection, target_metadata=METADATA, transaction_per_migration=True)
        with context.begin_transaction():
            context.run_migrations()
        connection.commit()


run()
