"""One row for each read of a result: by which key, which version, when. Rows of this table are only added.

Revision ID: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make the table, and let the database refuse to change what it and the results hold."""
    op.create_table(
        "result_reads",
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("case_id", sa.Uuid, nullable=False),
        sa.Column("result_version", sa.Integer, nullable=False),
        sa.Column("key_id", sa.Uuid, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, server_default=sa.text("clock_timestamp()")),
    )
    op.create_index("result_reads_of_case", "result_reads", ["case_id", "id"])
    op.execute("""
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'rows of % are only added', TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation'; END $$
""")
    for table in ("results", "case_events", "result_reads"):
        op.execute(f"CREATE TRIGGER only_added BEFORE UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION refuse_change()")


def downgrade() -> None:
    """Drop the table and the refusals."""
    for table in ("results", "case_events", "result_reads"):
        op.execute(f"DROP TRIGGER only_added ON {table}")
    op.execute("DROP FUNCTION refuse_change()")
    op.drop_table("result_reads")
