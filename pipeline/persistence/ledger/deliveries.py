"""Webhook endpoints, the events they are owed, and the log of what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.engine import Row

from pipeline.persistence.ledger.engine import Ledger, run

DELIVERY_LEASE_S = 30.0
"""Longer than the 15 s that a receiver may take."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a tenant wants to be told, and the secrets to sign with (two while one is rotated out)."""

    id: UUID
    tenant_id: UUID
    url: str
    secrets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClaimedDelivery:
    """One event that this worker now delivers."""

    id: UUID
    case_id: UUID
    attempt: int
    event_type: str
    body: str
    endpoint: Endpoint


_ADD_ENDPOINT = text("INSERT INTO webhook_endpoints (id, tenant_id, url, secrets) VALUES (:id, :tenant_id, :url, :secrets)")
_ENDPOINT = text("""
SELECT id, tenant_id, url, secrets FROM webhook_endpoints WHERE id = :id AND tenant_id = :tenant_id AND is_enabled
""")
_DISABLE = text("UPDATE webhook_endpoints SET is_enabled = false, disabled_because = :code WHERE id = :id")
# What is owed to a disabled endpoint is dropped when its time comes.
_CLAIM = text("""
UPDATE deliveries d SET attempt = attempt + CAST(e.is_enabled AS integer),
       lease_until = CASE WHEN e.is_enabled THEN clock_timestamp() + make_interval(secs => :lease_s) END,
       state = CASE WHEN e.is_enabled THEN 'pending' ELSE 'dropped' END,
       ended_at = CASE WHEN e.is_enabled THEN NULL ELSE clock_timestamp() END
FROM webhook_endpoints e
WHERE d.id = :id AND e.id = d.endpoint_id AND d.state = 'pending' AND d.due_at <= clock_timestamp()
  AND (d.lease_until IS NULL OR d.lease_until < clock_timestamp())
RETURNING d.id, d.case_id, d.attempt, d.event_type, d.body, d.state, e.id AS endpoint_id, e.tenant_id, e.url, e.secrets
""")
_RECORD = text("""
WITH ended AS (
    UPDATE deliveries SET state = :state, lease_until = NULL, due_at = COALESCE(CAST(:due_at AS timestamptz), due_at),
           ended_at = CASE WHEN :state = 'pending' THEN NULL ELSE clock_timestamp() END
    WHERE id = :id AND attempt = :attempt AND state = 'pending'
    RETURNING id
)
INSERT INTO delivery_attempts (delivery_id, attempt, outcome, status_code, duration_ms, at)
SELECT id, :attempt, :outcome, :status_code, :duration_ms, clock_timestamp() FROM ended
""")
_DUE = text("""
SELECT id FROM deliveries WHERE state = 'pending' AND due_at <= clock_timestamp() - make_interval(secs => :settle_s)
  AND (lease_until IS NULL OR lease_until < clock_timestamp())
ORDER BY due_at LIMIT :limit
""")
_OF_CASE = text("""
SELECT d.id, d.event_type, d.result_version, d.state, d.attempt, d.due_at, a.outcome, a.status_code, a.at
FROM deliveries d LEFT JOIN delivery_attempts a ON a.delivery_id = d.id AND a.attempt = d.attempt
WHERE d.case_id = :case_id ORDER BY d.created_at, d.id
""")


def add_endpoint(ledger: Ledger, endpoint: Endpoint) -> None:
    """Store a webhook endpoint."""
    run(ledger.durable, _ADD_ENDPOINT, id=endpoint.id, tenant_id=endpoint.tenant_id, url=endpoint.url, secrets=list(endpoint.secrets))


def find_endpoint(ledger: Ledger, endpoint_id: UUID, *, tenant_id: UUID) -> Endpoint | None:
    """An enabled endpoint of this tenant, or None."""
    rows = run(ledger.durable, _ENDPOINT, id=endpoint_id, tenant_id=tenant_id)
    return Endpoint(rows[0].id, rows[0].tenant_id, rows[0].url, tuple(rows[0].secrets)) if rows else None


def disable_endpoint(ledger: Ledger, endpoint_id: UUID, *, code: str) -> None:
    """Stop telling an endpoint that said it is gone."""
    run(ledger.durable, _DISABLE, id=endpoint_id, code=code)


def claim_delivery(ledger: Ledger, delivery_id: UUID) -> ClaimedDelivery | None:
    """Take one due event to deliver; None where it is done, not due, dropped, or somebody else has it."""
    rows = run(ledger.relaxed, _CLAIM, id=delivery_id, lease_s=DELIVERY_LEASE_S)
    if not rows or rows[0].state == "dropped":
        return None
    row = rows[0]
    endpoint = Endpoint(row.endpoint_id, row.tenant_id, row.url, tuple(row.secrets))
    return ClaimedDelivery(row.id, row.case_id, row.attempt, row.event_type, row.body, endpoint)


@dataclass(frozen=True, slots=True)
class DeliveryRecord:
    """What came of one attempt, and what follows."""

    state: str
    """`delivered`, `dead`, or `pending` with the next `due_at`."""
    outcome: str
    status_code: int | None
    duration_ms: int
    due_at: datetime | None = None


def record_delivery(ledger: Ledger, delivery_id: UUID, attempt: int, record: DeliveryRecord) -> None:
    """Log an attempt and move the event on, if the attempt is still the newest."""
    run(
        ledger.durable,
        _RECORD,
        id=delivery_id,
        attempt=attempt,
        state=record.state,
        outcome=record.outcome,
        status_code=record.status_code,
        duration_ms=record.duration_ms,
        due_at=record.due_at,
    )


def due_deliveries(ledger: Ledger, *, limit: int, settle_s: float = 0.0) -> list[UUID]:
    """Events whose time has come `settle_s` ago, oldest first: the doorbell of a fresh one is still on its way."""
    return [row.id for row in run(ledger.relaxed, _DUE, limit=limit, settle_s=settle_s)]


def deliveries_of(ledger: Ledger, case_id: UUID) -> Sequence[Row[Any]]:
    """The events of a case with the outcome of their newest attempt."""
    return run(ledger.durable, _OF_CASE, case_id=case_id)
