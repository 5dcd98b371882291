"""Which versions of the models serve, and what each inference process has loaded.

Expands only: code of the revision before runs on beside it.

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Make both tables; acts are only added, as everything that an auditor reads."""
    op.create_table(
        "model_acts",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("act", sa.Text, nullable=False),
        sa.Column("serving", sa.Text),
        sa.Column("canary", sa.Text),
        sa.Column("share", sa.Double, nullable=False, server_default=sa.text("0")),
        sa.Column("shadow", sa.Text),
        sa.Column("candidate", sa.Text),
        sa.Column("before", sa.Text),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, server_default=sa.text("clock_timestamp()")),
    )
    op.execute("CREATE TRIGGER only_added BEFORE UPDATE OR DELETE ON model_acts FOR EACH ROW EXECUTE FUNCTION refuse_change()")
    op.create_table(
        "model_reports",
        sa.Column("worker", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("version", sa.Text, primary_key=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("act_number", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("digest", sa.Text),
        sa.Column("code", sa.Text),
        sa.Column("reason", sa.Text),
        sa.Column("one_s", sa.Double),
        sa.Column("most_s", sa.Double),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
    )


def downgrade() -> None:
    """Drop both."""
    op.drop_table("model_reports")
    op.drop_table("model_acts")
