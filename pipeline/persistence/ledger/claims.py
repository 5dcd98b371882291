"""Claim, fence, lease and hand-off: how exactly one worker's work on a case counts.

A claim raises the case's attempt. Every later statement of that worker names the attempt; where
another worker has claimed since, the statement touches no row and its caller is told so.
"""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.engine import Row

from pipeline.cases.states import POOL_STATES, CaseState, require_transition
from pipeline.flow import Lane, Pool
from pipeline.persistence.ledger.engine import Ledger, run
from schemas.work import CaseInput, CaseWork

LEASE_S = 6.0
"""A claim without a sign of life for this long is anybody's."""
RENEW_EVERY_S = 2.0
MAX_TRIES = 2
"""Claims by one pool before the sweeper sets the case aside: a try, and one more."""
MOST_ATTEMPTS = 30
"""Claims by all pools together: a case that goes round and round ends too, be it that its tensors keep getting lost or that it is
given back free of charge each time."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A case that this worker now owns, until its lease lapses."""

    case_id: UUID
    attempt: int
    """The fence."""
    tries: int
    strikes: int
    """Tries by this pool that crashed, or whose worker did. A case with one is a suspect."""
    lane: Lane
    accepted_at: datetime
    deadline_at: datetime
    input: CaseInput
    work: CaseWork
    result_version: int
    is_preliminary: bool
    """The newest result is a preliminary one."""
    compensation_attempts: int
    client_reference: str | None
    endpoint_id: UUID | None

    due_s: float = field(compare=False)
    """The deadline on this process's monotonic clock, by the database's: a worker's wall clock may be wrong."""

    @property
    def until_s(self) -> float:
        """Monotonic seconds until which it is worked on: its deadline; without end in the compensation lane, where it has an answer."""
        return math.inf if self.lane is Lane.COMPENSATION else self.due_s

    @property
    def left_s(self) -> float:
        """Seconds until then; negative once they are over."""
        return self.until_s - time.monotonic()


@dataclass(frozen=True, slots=True)
class HandOn:
    """One case's way to the next pool: what was done, under which claim."""

    case_id: UUID
    attempt: int
    work: dict[str, Any]
    """Parts of `CaseWork`, JSON-ready, to merge into the row."""
    timeline: dict[str, Any]
    """Stage name to its times, to merge into the row."""


@dataclass(frozen=True, slots=True)
class Rung:
    """A case that is queued now, and the number of the doorbell to publish for it."""

    case_id: UUID
    publish_no: int
    attempt: int
    lane: Lane
    deadline_at: datetime


_COLUMNS = """id, attempt, tries, strikes, lane, accepted_at, deadline_at, input, work, result_version, is_preliminary,
compensation_attempts, client_reference, endpoint_id, EXTRACT(EPOCH FROM deadline_at - clock_timestamp()) AS left_s"""
"""What `Claimed` is made of."""

# A lapsed claim is given up and taken anew: two steps of the state table, two events. Due later than it was published: a
# retry that the sweeper has not rung yet, whoever has an old doorbell for it.
_CLAIM = text(f"""
WITH free AS (
    SELECT id, state = :claimed AS is_lapsed FROM cases
    WHERE id = ANY(:ids) AND tries < :max_tries
      AND ((state = :queued AND due_at <= published_at) OR (state = :claimed AND lease_until < clock_timestamp()))
    ORDER BY id FOR UPDATE
), moved AS (
    UPDATE cases SET state = :claimed, attempt = attempt + 1, tries = tries + 1,
           strikes = strikes + CAST(is_lapsed AS integer), claimed_by = :worker,
           lease_until = clock_timestamp() + make_interval(secs => :lease_s), changed_at = clock_timestamp(),
           version = version + CASE WHEN is_lapsed THEN 2 ELSE 1 END
    FROM free WHERE cases.id = free.id
    RETURNING cases.*, is_lapsed
), logged AS (
    INSERT INTO case_events (case_id, version, left_state, entered_state, attempt, worker, code, publish_no, at)
    SELECT id, version - 1, :claimed, :queued, attempt - 1, NULL, 'lease-expired', NULL, changed_at FROM moved WHERE is_lapsed
    UNION ALL
    SELECT id, version, :queued, :claimed, attempt, :worker, CASE WHEN tries > 1 THEN 'retry' END, CAST(:seen_no AS bigint), changed_at
    FROM moved
)
SELECT {_COLUMNS} FROM moved
""")  # noqa: S608 - column names of ours

# Never waits for a row: a batch that is handed on meanwhile locks the same rows in another order, which would be a deadlock.
_RENEW = text("""
WITH ours AS (
    SELECT cases.id FROM cases JOIN unnest(CAST(:ids AS uuid[]), CAST(:attempts AS integer[])) AS held(id, attempt)
        ON cases.id = held.id AND cases.attempt = held.attempt
    WHERE lease_until IS NOT NULL FOR UPDATE OF cases SKIP LOCKED
)
UPDATE cases SET lease_until = clock_timestamp() + make_interval(secs => :lease_s) FROM ours WHERE cases.id = ours.id
RETURNING cases.id
""")

_HAND_ON = text("""
WITH moved AS (
    UPDATE cases SET state = :entered, tries = 0, strikes = 0, claimed_by = NULL, lease_until = NULL,
           changed_at = clock_timestamp(), version = version + 1,
           work = cases.work || done.work, timeline = cases.timeline || done.timeline,
           publish_no = nextval('publish_no'), published_at = now(), due_at = now()
    FROM jsonb_to_recordset(CAST(:done AS jsonb)) AS done(case_id uuid, attempt integer, work jsonb, timeline jsonb)
    WHERE cases.id = done.case_id AND cases.attempt = done.attempt AND state = :left
    RETURNING cases.*
), logged AS (
    INSERT INTO case_events (case_id, version, left_state, entered_state, attempt, worker, at)
    SELECT id, version, :left, :entered, attempt, :worker, changed_at FROM moved
)
SELECT id, publish_no, attempt, lane, deadline_at FROM moved
""")

_GIVE_BACK = text("""
WITH moved AS (
    UPDATE cases SET state = :entered, claimed_by = NULL, lease_until = NULL, changed_at = clock_timestamp(), version = version + 1,
           tries = CASE WHEN cases.attempt >= :most_attempts THEN :max_tries WHEN :is_free THEN tries - 1 ELSE tries END,
           strikes = strikes + CASE WHEN :is_strike THEN 1 ELSE 0 END,
           publish_no = nextval('publish_no'), published_at = now(), due_at = now() + make_interval(secs => :delay_s)
    FROM unnest(CAST(:ids AS uuid[]), CAST(:attempts AS integer[])) AS held(id, attempt)
    WHERE cases.id = held.id AND cases.attempt = held.attempt AND claimed_by = :worker AND state = :left
    RETURNING cases.*
), logged AS (
    INSERT INTO case_events (case_id, version, left_state, entered_state, attempt, worker, code, at)
    SELECT id, version, :left, :entered, attempt, :worker, :code, changed_at FROM moved
)
SELECT id, publish_no, attempt, lane, deadline_at FROM moved
""")


def claim_cases(ledger: Ledger, case_ids: Sequence[UUID], *, pool: Pool, worker: str, seen_no: int) -> list[Claimed]:
    """Take cases for a pool: those that are queued for it, or claimed by somebody whose lease ran out; in the order asked.

    What is not returned is not ours: another worker has it, it has moved on, or it has cost too many tries.
    The attempt is counted here, before any work is done. `seen_no` is the publish number of the message that led here:
    the sweeper tells by it which other messages were overtaken.
    """
    states = POOL_STATES[pool]
    rows = run(
        ledger.relaxed,
        _CLAIM,
        ids=list(case_ids),
        queued=states.queued.value,
        claimed=states.claimed.value,
        worker=worker,
        lease_s=LEASE_S,
        max_tries=MAX_TRIES,
        seen_no=seen_no,
    )
    # A case that is named twice stands where it was named first.
    place = {case_id: number for number, case_id in enumerate(dict.fromkeys(case_ids))}
    return sorted(map(_claimed, rows), key=lambda case: place[case.case_id])


def renew_leases(ledger: Ledger, held: Sequence[tuple[UUID, int]]) -> set[UUID]:
    """Say that we are alive; return the cases that are still ours, without those that are being moved at this moment."""
    ids, attempts = [case_id for case_id, _ in held], [attempt for _, attempt in held]
    rows = run(ledger.relaxed, _RENEW, ids=ids, attempts=attempts, lease_s=LEASE_S)
    return {row.id for row in rows}


def hand_on(ledger: Ledger, done: Sequence[HandOn], *, left: CaseState, entered: CaseState, worker: str) -> list[Rung]:
    """Move finished cases to the next pool's queue, all in one statement.

    Only those whose attempt is still the caller's are moved and returned; the others were superseded.
    """
    require_transition(left, entered)
    items = [{"case_id": str(item.case_id), "attempt": item.attempt, "work": item.work, "timeline": item.timeline} for item in done]
    rows = run(ledger.relaxed, _HAND_ON, done=json.dumps(items), left=left.value, entered=entered.value, worker=worker)
    return [rung(row) for row in rows]


@dataclass(frozen=True, slots=True)
class Return:
    """Why and how claimed cases go back to a queue."""

    left: CaseState
    entered: CaseState
    code: str
    delay_s: float = 0.0
    is_free: bool = False
    """A drain, a suspect's company and a case whose time is over are charged no try."""
    is_strike: bool = False
    """The work crashed."""


def give_back(ledger: Ledger, held: Sequence[tuple[UUID, int]], why: Return, *, worker: str) -> list[Rung]:
    """Return claimed cases to a queue: after a drain at once, after a failure when their delay is over."""
    require_transition(why.left, why.entered)
    rows = run(
        ledger.relaxed,
        _GIVE_BACK,
        ids=[case_id for case_id, _ in held],
        attempts=[attempt for _, attempt in held],
        worker=worker,
        left=why.left.value,
        entered=why.entered.value,
        code=why.code,
        delay_s=why.delay_s,
        is_free=why.is_free,
        is_strike=why.is_strike,
        most_attempts=MOST_ATTEMPTS,
        max_tries=MAX_TRIES,
    )
    return [rung(row) for row in rows]


def _claimed(row: Row[Any]) -> Claimed:
    return Claimed(
        case_id=row.id,
        attempt=row.attempt,
        tries=row.tries,
        strikes=row.strikes,
        lane=Lane(row.lane),
        accepted_at=row.accepted_at,
        deadline_at=row.deadline_at,
        input=CaseInput.model_validate(row.input, extra="ignore"),
        work=CaseWork.model_validate(row.work, extra="ignore"),
        result_version=row.result_version,
        is_preliminary=row.is_preliminary,
        compensation_attempts=row.compensation_attempts,
        client_reference=row.client_reference,
        endpoint_id=row.endpoint_id,
        due_s=time.monotonic() + float(row.left_s),
    )


_READ = text(f"SELECT {_COLUMNS} FROM cases WHERE id = :case_id")  # noqa: S608


def read_unclaimed(ledger: Ledger, case_id: UUID) -> Claimed | None:
    """Read a case as a claim would give it, without claiming: for the sweeper, which ends what nobody may claim."""
    rows = run(ledger.relaxed, _READ, case_id=case_id)
    return _claimed(rows[0]) if rows else None


def rung(row: Row[Any]) -> Rung:
    """Read a queued case from any statement that returns its doorbell's columns."""
    return Rung(row.id, row.publish_no, row.attempt, Lane(row.lane), row.deadline_at)


_UPSTREAM = text("""
SELECT count(*) AS case_count FROM (
    SELECT 1 FROM cases WHERE state = ANY(:states) AND ended_at IS NULL AND due_at <= clock_timestamp() LIMIT :limit
) AS open_cases
""")


def count_cases_of(ledger: Ledger, pool: Pool, *, limit: int) -> int:
    """How many cases a pool has queued or claimed, those that wait for a later try left out; counts up to `limit`."""
    states = POOL_STATES[pool]
    found: int = run(ledger.relaxed, _UPSTREAM, states=[states.queued.value, states.claimed.value], limit=limit)[0].case_count
    return found
