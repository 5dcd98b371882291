"""Reading cases: for the gateway and the command, inside one tenant where it is not said otherwise."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.engine import Row

from pipeline.persistence.ledger.engine import Ledger, run

_COLUMNS = """id, tenant_id, state, lane, client_reference, endpoint_id, input, timeline, failure, accepted_at, deadline_at, changed_at,
ended_at, version, result_version, is_preliminary, attempt"""

_READ = text(f"SELECT {_COLUMNS} FROM cases WHERE id = :case_id AND tenant_id = :tenant_id")  # noqa: S608
_READ_ANSWERED = text(f"""
SELECT {_COLUMNS}, r.body AS result_body FROM cases c
LEFT JOIN (SELECT case_id AS answered_case, version AS answered_version, body FROM results) r
       ON r.answered_case = c.id AND r.answered_version = c.result_version
WHERE c.id = ANY(:case_ids)
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
SELECT r.version, r.kind, r.outcome, r.body, r.attempt, r.created_at FROM results r JOIN cases c ON c.id = r.case_id
WHERE r.case_id = :case_id AND c.tenant_id = :tenant_id AND r.version = COALESCE(CAST(:version AS integer), c.result_version)
""")


def read_case(ledger: Ledger, case_id: UUID, *, tenant_id: UUID) -> Row[Any] | None:
    """One case; None where it does not exist or is another tenant's, which look the same."""
    rows = run(ledger.durable, _READ, case_id=case_id, tenant_id=tenant_id)
    return rows[0] if rows else None


def read_answered_case(ledger: Ledger, case_id: UUID, *, tenant_id: UUID) -> Row[Any] | None:
    """One case with the body of its newest result (`result_body`, None before the first)."""
    rows = read_answered_cases(ledger, [case_id])
    return rows[0] if rows and rows[0].tenant_id == tenant_id else None


def read_answered_cases(ledger: Ledger, case_ids: Sequence[UUID]) -> Sequence[Row[Any]]:
    """Cases of any tenant, each with the body of its newest result: who is given them has asked for them by tenant before."""
    return run(ledger.durable, _READ_ANSWERED, case_ids=list(case_ids))


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


def read_result(ledger: Ledger, case_id: UUID, *, tenant_id: UUID, version: int | None = None) -> Row[Any] | None:
    """One result version (the newest where none is named), or None."""
    rows = run(ledger.durable, _RESULT, case_id=case_id, tenant_id=tenant_id, version=version)
    return rows[0] if rows else None
