"""Clean the tables that change all the time after so many dead rows, however many ended cases they keep.

By a share of the table the dead rows grew with it: 2 % of a million kept cases are 20,000 between two vacuums, and the
guard and the sweeper walk over them.

Revision ID: 0004
Revises: 0003
"""

from alembic import op

revision = "0004"
down_revision = "0003"

TABLES = ("cases", "deliveries")


def upgrade() -> None:
    """Count dead rows alone. Waits for no reader and no writer."""
    for table in TABLES:
        op.execute(f"ALTER TABLE {table} SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)")


def downgrade() -> None:
    """Go by a share of the table again."""
    for table in TABLES:
        op.execute(f"ALTER TABLE {table} SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500)")
