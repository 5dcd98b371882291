"""Reading cases: for the gateway and the command, inside one tenant where it is not said otherwise."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.engine import Row

from pipeline.persistence.ledger.engine import Ledger, run

_COLUMNS = """id, tenant_id, state, lane, client_reference, endpoint_id, input, timeline, failure, accepted_at, deadline_at, changed_at,
ended_at, version, result_version, is_preliminary, attempt"""

_READ = text(f"SELECT {_COLUMNS} FROM cases WHERE id = :case_id AND tenant_id = :tenant_id")  # noqa: S608
# The read is written down in the statement that reads.
_READ_ANSWERED = text(f"""
WITH asked AS (
    SELECT * FROM unnest(CAST(:case_ids AS uuid[]), CAST(:tenant_ids AS uuid[]), CAST(:key_ids AS uuid[])) AS asked(case_id, tenant, key_id)
), found AS (
    SELECT {_COLUMNS}, r.body AS result_body FROM cases c
    LEFT JOIN (SELECT case_id AS answered_case, version AS answered_version, body FROM results) r
           ON r.answered_case = c.id AND r.answered_version = c.result_version
    WHERE c.id IN (SELECT case_id FROM asked)
), logged AS (
    INSERT INTO result_reads (case_id, result_version, key_id)
    SELECT case_id, result_version, key_id FROM found JOIN asked ON case_id = id AND tenant = tenant_id WHERE result_version > 0
)
SELECT * FROM found
""")  # noqa: S608
_LIST = text(f"""
SELECT {_COLUMNS} FROM cases
WHERE tenant_id = :tenant_id AND (CAST(:before AS uuid) IS NULL OR id < CAST(:before AS uuid))
  AND (CAST(:state AS text) IS NULL OR state = :state) AND (CAST(:lane AS text) IS NULL OR lane = :lane)
  AND (CAST(:since AS timestamptz) IS NULL OR accepted_at >= CAST(:since AS timestamptz))
ORDER BY id DESC LIMIT :limit
""")  # noqa: S608
_EVENTS = text("""
SELECT e.id, e.version, e.left_state, e.entered_state, e.attempt, e.code, e.at
FROM case_events e JOIN cases c ON c.id = e.case_id
WHERE e.case_id = :case_id AND c.tenant_id = :tenant_id AND e.version > :after ORDER BY e.id
""")
_RESULT = text("""
WITH found AS (
    SELECT r.case_id, r.version, r.kind, r.outcome, r.body, r.attempt, r.created_at FROM results r JOIN cases c ON c.id = r.case_id
    WHERE r.case_id = :case_id AND c.tenant_id = :tenant_id AND r.version = COALESCE(CAST(:version AS integer), c.result_version)
), logged AS (
    INSERT INTO result_reads (case_id, result_version, key_id) SELECT case_id, version, CAST(:key_id AS uuid) FROM found
)
SELECT version, kind, outcome, body, attempt, created_at FROM found
""")


def read_case(ledger: Ledger, case_id: UUID, *, tenant_id: UUID) -> Row[Any] | None:
    """One case; None where it does not exist or is another tenant's, which look the same."""
    rows = run(ledger.durable, _READ, case_id=case_id, tenant_id=tenant_id)
    return rows[0] if rows else None


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads: a result is read by a key, and that is written down."""

    tenant_id: UUID
    key_id: UUID


def read_answered_case(ledger: Ledger, case_id: UUID, reader: Reader) -> Row[Any] | None:
    """One case with the body of its newest result (`result_body`, None before the first)."""
    rows = read_answered_cases(ledger, [(case_id, reader)])
    return rows[0] if rows and rows[0].tenant_id == reader.tenant_id else None


def read_answered_cases(ledger: Ledger, asked: Sequence[tuple[UUID, Reader]]) -> Sequence[Row[Any]]:
    """Several cases, each with the body of its newest result. They may be other tenants': who is given one compares."""
    return run(
        ledger.relaxed,
        _READ_ANSWERED,
        case_ids=[case_id for case_id, _ in asked],
        tenant_ids=[reader.tenant_id for _, reader in asked],
        key_ids=[reader.key_id for _, reader in asked],
    )


def list_cases(
    ledger: Ledger,
    tenant_id: UUID,
    *,
    limit: int,
    before: UUID | None = None,
    filters: dict[str, str | datetime | None] | None = None,
) -> Sequence[Row[Any]]:
    """A tenant's cases, newest first; `before` is the last id of the page before. Filters: state, lane, since."""
    chosen = {"state": None, "lane": None, "since": None} | (filters or {})
    return run(ledger.durable, _LIST, tenant_id=tenant_id, before=before, limit=limit, **chosen)


def read_events(ledger: Ledger, case_id: UUID, *, tenant_id: UUID, after_version: int = 0) -> Sequence[Row[Any]]:
    """The state changes of a case after a version, oldest first."""
    return run(ledger.durable, _EVENTS, case_id=case_id, tenant_id=tenant_id, after=after_version)


def read_result(ledger: Ledger, case_id: UUID, reader: Reader, *, version: int | None = None) -> Row[Any] | None:
    """One result version (the newest where none is named), or None."""
    rows = run(ledger.relaxed, _RESULT, case_id=case_id, tenant_id=reader.tenant_id, key_id=reader.key_id, version=version)
    return rows[0] if rows else None
