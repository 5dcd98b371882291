"""The compensation queue in the ledger: cases that were put off, their tries, and the human worklist at its end."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text

from pipeline.cases.states import QUEUED, CaseState, require_transition
from pipeline.persistence.ledger.claims import Rung, rung
from pipeline.persistence.ledger.engine import Ledger, run

MOST_COMPENSATION_ATTEMPTS = 5
"""After so many tries a human decides."""

# The try is counted before the work is done, as everywhere.
_RELEASE = text("""
WITH chosen AS (
    SELECT id FROM cases
    WHERE state = 'deferred' AND ended_at IS NULL AND worklist_at IS NULL AND due_at <= clock_timestamp()
    ORDER BY accepted_at LIMIT :limit FOR UPDATE SKIP LOCKED
), moved AS (
    UPDATE cases SET state = 'accepted', tries = 0, compensation_attempts = compensation_attempts + 1, changed_at = clock_timestamp(),
           version = version + 1, publish_no = nextval('publish_no'), published_at = now(), due_at = now()
    FROM chosen WHERE cases.id = chosen.id
    RETURNING cases.*
), logged AS (
    INSERT INTO case_events (case_id, version, left_state, entered_state, attempt, code, at)
    SELECT id, version, 'deferred', 'accepted', attempt, 'compensation', changed_at FROM moved
)
SELECT id, publish_no, attempt, lane, deadline_at FROM moved
""")
_PUT_OFF = text("""
WITH moved AS (
    UPDATE cases SET state = 'deferred', lane = 'compensation', deferred_because = :reason, tries = 0, claimed_by = NULL,
           lease_until = NULL, changed_at = clock_timestamp(), version = version + 1,
           due_at = clock_timestamp() + make_interval(secs => :delay_s),
           worklist_at = CASE WHEN compensation_attempts >= :most OR :to_human THEN clock_timestamp() END
    WHERE id = :case_id AND state = :state AND attempt = :attempt AND ended_at IS NULL
    RETURNING id, version, attempt, changed_at, worklist_at
), logged AS (
    INSERT INTO case_events (case_id, version, left_state, entered_state, attempt, code, at)
    SELECT id, version, :state, 'deferred', attempt, :reason, changed_at FROM moved
)
SELECT id, worklist_at FROM moved
""")
_RETRY = text("""
WITH moved AS (
    UPDATE cases SET worklist_at = NULL, compensation_attempts = 0, strikes = 0, due_at = clock_timestamp(), version = version + 1
    WHERE id = :case_id AND tenant_id = :tenant_id AND state = 'deferred' AND ended_at IS NULL
    RETURNING id, version, attempt
), logged AS (
    INSERT INTO case_events (case_id, version, left_state, entered_state, attempt, worker, code, at)
    SELECT id, version, 'deferred', 'deferred', attempt, :actor, 'retry-asked', clock_timestamp() FROM moved
)
SELECT id FROM moved
""")
_LIST = text("""
SELECT id, accepted_at, deferred_because, compensation_attempts, due_at, worklist_at, state FROM cases
WHERE tenant_id = :tenant_id AND lane = 'compensation' AND ended_at IS NULL
ORDER BY worklist_at NULLS LAST, accepted_at LIMIT :limit
""")
# Work in sight that is not compensation; and what has ended since an event.
_ROOM = text("""
SELECT (SELECT count(*) FROM cases WHERE ended_at IS NULL AND lane <> 'compensation' AND state = ANY(:queued)) AS waiting_count,
       (SELECT count(*) FROM cases WHERE ended_at IS NULL AND lane = 'compensation' AND state <> 'deferred') AS running_count,
       (SELECT COALESCE(max(id), CAST(:after_id AS bigint)) FROM case_events WHERE id > CAST(:after_id AS bigint)) AS last_id,
       (SELECT count(*) FROM case_events WHERE id > CAST(:after_id AS bigint) AND entered_state = 'completed') AS completed_count
""")


@dataclass(frozen=True, slots=True)
class Room:
    """What the compensation queue must know of the rest of the house."""

    waiting_count: int
    """Cases of the other lanes that wait in a queue."""
    running_count: int
    """Compensation cases that are on their way."""
    completed_count: int
    """Cases completed since the last look."""
    last_id: int


@dataclass(frozen=True, slots=True)
class PutOffCase:
    """A case in the compensation lane, as an operator sees it."""

    case_id: UUID
    state: str
    accepted_at: datetime
    reason: str | None
    attempts: int
    due_at: datetime
    worklist_at: datetime | None
    """Since when it waits for a human; None while tries are left."""


def look_round(ledger: Ledger, *, after_id: int) -> Room:
    """How busy the house is."""
    row = run(ledger.relaxed, _ROOM, queued=[state.value for state in QUEUED], after_id=after_id)[0]
    return Room(row.waiting_count, row.running_count, row.completed_count, row.last_id)


def release(ledger: Ledger, *, limit: int) -> list[Rung]:
    """Send the oldest due cases back to intake, a try each; ring for those that are returned."""
    require_transition(CaseState.DEFERRED, CaseState.ACCEPTED)
    return [rung(row) for row in run(ledger.relaxed, _RELEASE, limit=limit)]


@dataclass(frozen=True, slots=True)
class PutOff:
    """Why and until when a case is put off, and where it stood."""

    case_id: UUID
    attempt: int
    left: CaseState
    reason: str
    delay_s: float
    to_human: bool = False
    """It is not tried again by itself."""


def put_off(ledger: Ledger, put: PutOff) -> bool | None:
    """Put a case off after tries that came to nothing; True where it went to the human worklist, None where it had moved."""
    require_transition(put.left, CaseState.DEFERRED)
    rows = run(
        ledger.durable,
        _PUT_OFF,
        case_id=put.case_id,
        attempt=put.attempt,
        state=put.left.value,
        reason=put.reason,
        delay_s=put.delay_s,
        to_human=put.to_human,
        most=MOST_COMPENSATION_ATTEMPTS,
    )
    return rows[0].worklist_at is not None if rows else None


def ask_retry(ledger: Ledger, case_id: UUID, *, tenant_id: UUID, actor: str) -> bool:
    """Give a case all its tries again, at once; False where it is not put off. The event names who asked."""
    return bool(run(ledger.durable, _RETRY, case_id=case_id, tenant_id=tenant_id, actor=actor))


def put_off_cases(ledger: Ledger, tenant_id: UUID, *, limit: int) -> Sequence[PutOffCase]:
    """A tenant's cases in the compensation lane: those for a human first, then the oldest."""
    rows: Sequence[Any] = run(ledger.durable, _LIST, tenant_id=tenant_id, limit=limit)
    return [
        PutOffCase(row.id, row.state, row.accepted_at, row.deferred_because, row.compensation_attempts, row.due_at, row.worklist_at)
        for row in rows
    ]
