"""Retry budgets of the pools, and the strikes of a case.

Expands only: code of the revision before runs on beside it.

Revision ID: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the column, and a full bucket for each pool."""
    op.add_column("cases", sa.Column("strikes", sa.Integer, nullable=False, server_default=sa.text("0")))
    budgets = op.create_table(
        "retry_budgets",
        sa.Column("pool", sa.Text, primary_key=True),
        sa.Column("tokens", sa.Double, nullable=False, server_default=sa.text("20")),
    )
    op.bulk_insert(budgets, [{"pool": pool} for pool in ("intake", "inference", "reporting")])


def downgrade() -> None:
    """Drop both."""
    op.drop_table("retry_budgets")
    op.drop_column("cases", "strikes")
