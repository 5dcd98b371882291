"""The ledger: tenants, keys, cases, events, results, idempotency keys, webhook endpoints and deliveries.

Revision ID: 0001
Revises: nothing
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

revision = "0001"
down_revision = None

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Make the tables."""
    op.execute("CREATE SEQUENCE publish_no")
    _people()
    _cases()
    _case_records()
    _webhooks()
    # Rows of these tables change several times a second: vacuum early, and leave room for updates in place.
    op.execute("ALTER TABLE cases SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500)")
    op.execute("ALTER TABLE deliveries SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500)")


def downgrade() -> None:
    """Drop the tables, and every case with them."""
    for table in (
        "delivery_attempts",
        "deliveries",
        "webhook_endpoints",
        "idempotency_keys",
        "results",
        "case_events",
        "cases",
        "api_keys",
        "tenants",
    ):
        op.drop_table(table)
    op.execute("DROP SEQUENCE publish_no")


def _people() -> None:
    op.create_table(
        "tenants",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("name", sa.Text, nullable=False, unique=True),
        sa.Column("created_at", MOMENT, nullable=False, server_default=sa.text("now()")),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("tenant_id", sa.Uuid, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("scopes", ARRAY(sa.Text), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False, server_default=sa.text("now()")),
        sa.Column("revoked_at", MOMENT),
    )


def _cases() -> None:
    op.create_table(
        "cases",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("tenant_id", sa.Uuid, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("lane", sa.Text, nullable=False),
        sa.Column("client_reference", sa.Text),
        sa.Column("endpoint_id", sa.Uuid),
        sa.Column("input", JSONB, nullable=False),
        sa.Column("work", JSONB, nullable=False, server_default=sa.text("'{}'")),
        sa.Column("timeline", JSONB, nullable=False, server_default=sa.text("'{}'")),
        sa.Column("failure", JSONB),
        sa.Column("traceparent", sa.Text),
        sa.Column("accepted_at", MOMENT, nullable=False),
        sa.Column("deadline_at", MOMENT, nullable=False),
        sa.Column("changed_at", MOMENT, nullable=False),
        sa.Column("ended_at", MOMENT),
        sa.Column("version", sa.Integer, nullable=False, server_default=sa.text("1")),
        sa.Column("result_version", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("is_preliminary", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("attempt", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("tries", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("claimed_by", sa.Text),
        sa.Column("lease_until", MOMENT),
        sa.Column("publish_no", sa.BigInteger, nullable=False),
        sa.Column("published_at", MOMENT, nullable=False),
        sa.Column("due_at", MOMENT, nullable=False),
    )
    op.create_index("cases_open", "cases", ["id"], postgresql_where=sa.text("ended_at IS NULL"))
    op.create_index("cases_of_tenant", "cases", ["tenant_id", "id"])


def _case_records() -> None:
    op.create_table(
        "case_events",
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("case_id", sa.Uuid, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("left_state", sa.Text),
        sa.Column("entered_state", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("worker", sa.Text),
        sa.Column("code", sa.Text),
        sa.Column("publish_no", sa.BigInteger),
        sa.Column("at", MOMENT, nullable=False),
    )
    op.create_index("case_events_of_case", "case_events", ["case_id", "id"])
    op.create_table(
        "results",
        sa.Column("case_id", sa.Uuid, primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("tenant_id", sa.Uuid, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("fingerprint", sa.LargeBinary, nullable=False),
        sa.Column("case_id", sa.Uuid, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
    )


def _webhooks() -> None:
    op.create_table(
        "webhook_endpoints",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("tenant_id", sa.Uuid, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("secrets", ARRAY(sa.Text), nullable=False),
        sa.Column("is_enabled", sa.Boolean, nullable=False, server_default=sa.text("true")),
        sa.Column("disabled_because", sa.Text),
        sa.Column("created_at", MOMENT, nullable=False, server_default=sa.text("now()")),
    )
    op.create_table(
        "deliveries",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("case_id", sa.Uuid, nullable=False),
        sa.Column("endpoint_id", sa.Uuid, nullable=False),
        sa.Column("event_type", sa.Text, nullable=False),
        sa.Column("result_version", sa.Integer, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False, server_default=sa.text("'pending'")),
        sa.Column("attempt", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("lease_until", MOMENT),
        sa.Column("due_at", MOMENT, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("ended_at", MOMENT),
        sa.CheckConstraint("state IN ('pending', 'delivered', 'dead', 'dropped')", name="deliveries_state"),
    )
    op.create_index("deliveries_due", "deliveries", ["due_at"], postgresql_where=sa.text("state = 'pending'"))
    op.create_index("deliveries_of_case", "deliveries", ["case_id"])
    op.create_table(
        "delivery_attempts",
        sa.Column("delivery_id", sa.Uuid, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("status_code", sa.Integer),
        sa.Column("duration_ms", sa.Integer),
        sa.Column("at", MOMENT, nullable=False),
    )
