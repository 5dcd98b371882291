"""How a case enters the ledger, and who may bring it: acceptance, idempotency, tenants and keys."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text

from pipeline.errors import RejectedInput
from pipeline.flow import Lane
from pipeline.persistence.ledger.engine import Ledger, run
from schemas.work import CaseInput


class KeyReused(RejectedInput):
    """An idempotency key came back with another request."""

    code = "idempotency-key-reused"
    title = "This Idempotency-Key was used for another request"
    advice = "Use a new key for a new request; the same key only for the same body."


@dataclass(frozen=True, slots=True)
class NewCase:
    """What the gateway commits before it answers 202."""

    id: UUID
    tenant_id: UUID
    lane: Lane
    input: CaseInput
    accepted_at: datetime
    deadline_at: datetime
    idempotency_key: str
    fingerprint: bytes
    """SHA-256 of what was asked: the same key with another fingerprint is refused."""
    client_reference: str | None = None
    endpoint_id: UUID | None = None
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class Accepted:
    """The case that stands in the ledger, new or met again by its key."""

    case_id: UUID
    publish_no: int
    deadline_at: datetime
    is_replay: bool


_ACCEPT = text("""
WITH asked AS (
    SELECT * FROM jsonb_to_recordset(CAST(:asked AS jsonb)) AS asked(
        id uuid, tenant_id uuid, key text, fingerprint text, lane text, client_reference text, endpoint_id uuid, input jsonb,
        traceparent text, accepted_at timestamptz, deadline_at timestamptz)
), keyed AS (
    INSERT INTO idempotency_keys (tenant_id, key, fingerprint, case_id, created_at)
    SELECT tenant_id, key, decode(fingerprint, 'hex'), id, accepted_at FROM asked
    ON CONFLICT (tenant_id, key) DO NOTHING
    RETURNING case_id
), created AS (
    INSERT INTO cases (id, tenant_id, state, lane, client_reference, endpoint_id, input, traceparent,
                       accepted_at, deadline_at, changed_at, publish_no, published_at, due_at)
    SELECT id, tenant_id, 'accepted', lane, client_reference, endpoint_id, input, traceparent,
           accepted_at, deadline_at, accepted_at, nextval('publish_no'), now(), now()
    FROM asked JOIN keyed ON id = case_id
    RETURNING id, publish_no, accepted_at
), logged AS (
    INSERT INTO case_events (case_id, version, entered_state, attempt, at)
    SELECT id, 1, 'accepted', 0, accepted_at FROM created
)
SELECT id, publish_no FROM created
""")

_KEYED = text("""
SELECT k.case_id, k.fingerprint, c.publish_no, c.deadline_at
FROM idempotency_keys k JOIN cases c ON c.id = k.case_id
WHERE k.tenant_id = :tenant_id AND k.key = :key
""")


def accept_cases(ledger: Ledger, asked: Sequence[NewCase]) -> list[Accepted | KeyReused]:
    """Commit cases with their idempotency keys, or find the cases that the keys already name; one commit for all.

    Returns
    -------
    One answer for each, in their order. `KeyReused` where the key names a case that was asked for with another body.

    Raises
    ------
    LedgerUnavailable
        Nothing was promised to anybody: the clients try again with the same keys.
    """
    rows = run(ledger.durable, _ACCEPT, asked=json.dumps([_as_json(new) for new in asked]))
    made = {row.id: row.publish_no for row in rows}
    return [
        Accepted(new.id, made[new.id], new.deadline_at, is_replay=False) if new.id in made else _already_keyed(ledger, new) for new in asked
    ]


def _already_keyed(ledger: Ledger, new: NewCase) -> Accepted | KeyReused:
    try:
        known = find_by_key(ledger, tenant_id=new.tenant_id, key=new.idempotency_key, fingerprint=new.fingerprint)
    except KeyReused as error:
        return error
    # None: the key was purged between the two statements.
    return known or accept_cases(ledger, [new])[0]


def _as_json(new: NewCase) -> dict[str, Any]:
    return {
        "id": str(new.id),
        "tenant_id": str(new.tenant_id),
        "key": new.idempotency_key,
        "fingerprint": new.fingerprint.hex(),
        "lane": new.lane.value,
        "client_reference": new.client_reference,
        "endpoint_id": str(new.endpoint_id) if new.endpoint_id else None,
        "input": new.input.model_dump(mode="json"),
        "traceparent": new.traceparent,
        "accepted_at": new.accepted_at.isoformat(),
        "deadline_at": new.deadline_at.isoformat(),
    }


def find_by_key(ledger: Ledger, *, tenant_id: UUID, key: str, fingerprint: bytes) -> Accepted | None:
    """Find the case that an idempotency key already names, before any work is done for a repeat.

    Raises
    ------
    KeyReused
        The key names a case that was asked for with another body.
    """
    rows = run(ledger.durable, _KEYED, tenant_id=tenant_id, key=key)
    if not rows:
        return None
    if bytes(rows[0].fingerprint) != fingerprint:
        raise KeyReused("the key was used with another request")
    return Accepted(rows[0].case_id, rows[0].publish_no, rows[0].deadline_at, is_replay=True)


@dataclass(frozen=True, slots=True)
class ApiKey:
    """Who is asking, and what they may do."""

    id: UUID
    tenant_id: UUID
    scopes: frozenset[str]


_FIND_KEY = text("SELECT id, tenant_id, scopes FROM api_keys WHERE hash = :hash AND revoked_at IS NULL")
_ADD_TENANT = text("""
INSERT INTO tenants (id, name) VALUES (:id, :name) ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id
""")
_ADD_KEY = text("""
INSERT INTO api_keys (id, tenant_id, name, hash, scopes) VALUES (:id, :tenant_id, :name, :hash, :scopes)
ON CONFLICT (hash) DO UPDATE SET revoked_at = NULL, scopes = excluded.scopes
""")


def find_api_key(ledger: Ledger, key_hash: bytes) -> ApiKey | None:
    """Look an API key up by the SHA-256 of its text; None where it is unknown or revoked."""
    rows = run(ledger.durable, _FIND_KEY, hash=key_hash)
    return ApiKey(rows[0].id, rows[0].tenant_id, frozenset(rows[0].scopes)) if rows else None


def add_tenant(ledger: Ledger, tenant_id: UUID, name: str) -> UUID:
    """Make a tenant, or find the one of that name."""
    found: UUID = run(ledger.durable, _ADD_TENANT, id=tenant_id, name=name)[0].id
    return found


def add_api_key(ledger: Ledger, key: ApiKey, *, name: str, key_hash: bytes) -> None:
    """Store the hash of an API key; its text is shown once and never kept."""
    scopes: Sequence[str] = sorted(key.scopes)
    run(ledger.durable, _ADD_KEY, id=key.id, tenant_id=key.tenant_id, name=name, hash=key_hash, scopes=scopes)
