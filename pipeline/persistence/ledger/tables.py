"""The tables, as the code knows them. `migrations/` makes them; a test compares the two."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Sequence,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

METADATA = MetaData()
MOMENT = DateTime(timezone=True)

PUBLISH_NO = Sequence("publish_no", metadata=METADATA)
"""Counts every doorbell; see `sweep.py`."""

TENANTS = Table(
    "tenants",
    METADATA,
    Column("id", Uuid, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("created_at", MOMENT, nullable=False, server_default=text("now()")),
)

API_KEYS = Table(
    "api_keys",
    METADATA,
    Column("id", Uuid, primary_key=True),
    Column("tenant_id", Uuid, nullable=False),
    Column("name", Text, nullable=False),
    Column("hash", LargeBinary, nullable=False, unique=True),
    Column("scopes", ARRAY(Text), nullable=False),
    Column("created_at", MOMENT, nullable=False, server_default=text("now()")),
    Column("revoked_at", MOMENT),
)

CASES = Table(
    "cases",
    METADATA,
    Column("id", Uuid, primary_key=True),
    Column("tenant_id", Uuid, nullable=False),
    Column("state", Text, nullable=False),
    Column("lane", Text, nullable=False),
    Column("client_reference", Text),
    Column("endpoint_id", Uuid),
    Column("input", JSONB, nullable=False),
    Column("work", JSONB, nullable=False, server_default=text("'{}'")),
    Column("timeline", JSONB, nullable=False, server_default=text("'{}'")),
    Column("failure", JSONB),
    Column("traceparent", Text),
    Column("accepted_at", MOMENT, nullable=False),
    Column("deadline_at", MOMENT, nullable=False),
    Column("changed_at", MOMENT, nullable=False),
    Column("ended_at", MOMENT),
    # Goes up with every change that a client can see: the ETag.
    Column("version", Integer, nullable=False, server_default=text("1")),
    Column("result_version", Integer, nullable=False, server_default=text("0")),
    Column("is_preliminary", Boolean, nullable=False, server_default=text("false")),
    # The fence: goes up with every claim and never down.
    Column("attempt", Integer, nullable=False, server_default=text("0")),
    # Claims by the present pool; counted before the body runs, back to 0 when the case is handed on.
    Column("tries", Integer, nullable=False, server_default=text("0")),
    # Those of them that crashed, or whose worker did.
    Column("strikes", Integer, nullable=False, server_default=text("0")),
    Column("claimed_by", Text),
    Column("lease_until", MOMENT),
    # The doorbell that this row stands for: the row is its own outbox. Due later than it was published: given back with a delay.
    Column("publish_no", BigInteger, nullable=False),
    Column("published_at", MOMENT, nullable=False),
    Column("due_at", MOMENT, nullable=False),
    # The compensation queue: why the case was put off, how often it was tried again, since when it is a human's.
    Column("deferred_because", Text),
    Column("compensation_attempts", Integer, nullable=False, server_default=text("0")),
    Column("worklist_at", MOMENT),
    # On nothing that changes while a case is open: an update that finds room on its page touches no index, only the end must.
    Index("cases_open", "id", postgresql_where=text("ended_at IS NULL")),
    Index("cases_of_tenant", "tenant_id", "id"),
)

# One row a pool, made by the migration: how many retries it may still have.
RETRY_BUDGETS = Table(
    "retry_budgets",
    METADATA,
    Column("pool", Text, primary_key=True),
    Column("tokens", Double, nullable=False, server_default=text("20")),
)

CASE_EVENTS = Table(
    "case_events",
    METADATA,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("case_id", Uuid, nullable=False),
    Column("version", Integer, nullable=False),
    Column("left_state", Text),
    Column("entered_state", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("worker", Text),
    Column("code", Text),
    # On a claim: the number of the doorbell that was answered.
    Column("publish_no", BigInteger),
    Column("at", MOMENT, nullable=False),
    Index("case_events_of_case", "case_id", "id"),
)

RESULTS = Table(
    "results",
    METADATA,
    Column("case_id", Uuid, primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    # The bytes that were answered: built once, sent again as they are.
    Column("body", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("created_at", MOMENT, nullable=False),
)

# Who has read which version of a result: rows are only added.
RESULT_READS = Table(
    "result_reads",
    METADATA,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("case_id", Uuid, nullable=False),
    Column("result_version", Integer, nullable=False),
    Column("key_id", Uuid, nullable=False),
    Column("at", MOMENT, nullable=False, server_default=text("clock_timestamp()")),
    Index("result_reads_of_case", "case_id", "id"),
)

IDEMPOTENCY_KEYS = Table(
    "idempotency_keys",
    METADATA,
    Column("tenant_id", Uuid, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("fingerprint", LargeBinary, nullable=False),
    Column("case_id", Uuid, nullable=False),
    Column("created_at", MOMENT, nullable=False),
)

WEBHOOK_ENDPOINTS = Table(
    "webhook_endpoints",
    METADATA,
    Column("id", Uuid, primary_key=True),
    Column("tenant_id", Uuid, nullable=False),
    Column("url", Text, nullable=False),
    # Needed in clear to sign with; readable by the delivery role only.
    Column("secrets", ARRAY(Text), nullable=False),
    Column("is_enabled", Boolean, nullable=False, server_default=text("true")),
    Column("disabled_because", Text),
    Column("created_at", MOMENT, nullable=False, server_default=text("now()")),
)

DELIVERIES = Table(
    "deliveries",
    METADATA,
    Column("id", Uuid, primary_key=True),
    Column("case_id", Uuid, nullable=False),
    Column("endpoint_id", Uuid, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("result_version", Integer, nullable=False),
    Column("body", Text, nullable=False),
    Column("state", Text, nullable=False, server_default=text("'pending'")),
    Column("attempt", Integer, nullable=False, server_default=text("0")),
    Column("lease_until", MOMENT),
    Column("due_at", MOMENT, nullable=False),
    Column("created_at", MOMENT, nullable=False),
    Column("ended_at", MOMENT),
    CheckConstraint("state IN ('pending', 'delivered', 'dead', 'dropped')", name="deliveries_state"),
    Index("deliveries_due", "due_at", postgresql_where=text("state = 'pending'")),
    Index("deliveries_of_case", "case_id"),
)

DELIVERY_ATTEMPTS = Table(
    "delivery_attempts",
    METADATA,
    Column("delivery_id", Uuid, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("outcome", Text, nullable=False),
    Column("status_code", Integer),
    Column("duration_ms", Integer),
    Column("at", MOMENT, nullable=False),
)

# Which versions of a model serve: the newest act of a name is in force. Rows are only added.
MODEL_ACTS = Table(
    "model_acts",
    METADATA,
    Column("name", Text, primary_key=True),
    # From 1 for each name: of two operators who act on the same state, one wins.
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("act", Text, nullable=False),
    Column("serving", Text),
    Column("canary", Text),
    Column("share", Double, nullable=False, server_default=text("0")),
    Column("shadow", Text),
    Column("candidate", Text),
    Column("before", Text),
    Column("actor", Text, nullable=False),
    Column("at", MOMENT, nullable=False, server_default=text("clock_timestamp()")),
)

# What each inference process has loaded or refused, and when it last said so.
MODEL_REPORTS = Table(
    "model_reports",
    METADATA,
    Column("worker", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("version", Text, primary_key=True),
    Column("state", Text, nullable=False),
    # The act that a refusal answers: another act is another try.
    Column("act_number", Integer, nullable=False, server_default=text("0")),
    Column("digest", Text),
    Column("code", Text),
    Column("reason", Text),
    # L(1) and L(16) as the warm-up measured them.
    Column("one_s", Double),
    Column("most_s", Double),
    Column("seen_at", MOMENT, nullable=False),
)
