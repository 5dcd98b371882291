"""The guard's answers and the compensation queue: why a case was put off, how often it was tried again, whether a human has it now.

Expands only: code of the revision before runs on beside it.

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the columns."""
    op.add_column("cases", sa.Column("deferred_because", sa.Text))
    op.add_column("cases", sa.Column("compensation_attempts", sa.Integer, nullable=False, server_default=sa.text("0")))
    op.add_column("cases", sa.Column("worklist_at", sa.DateTime(timezone=True)))


def downgrade() -> None:
    """Drop the columns."""
    for name in ("worklist_at", "compensation_attempts", "deferred_because"):
        op.drop_column("cases", name)
