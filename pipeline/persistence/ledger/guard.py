"""Answers by the clock: which open cases are owed one now, and the statements that give it.

Only the database's clock is asked. Each statement is guarded by what was read, so two guards, a worker and a client
may meet on one case, and one of them wins.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.engine import Row

from pipeline.cases.states import POOL_STATES, QUEUED, CaseState
from pipeline.flow import Lane, Pool
from pipeline.persistence.ledger.engine import Ledger, run
from pipeline.persistence.ledger.outcomes import ANSWER_CHANNEL, CALLBACK_COLUMNS, Answer, Callback, callback_parameters
from schemas.work import CaseInput, CaseWork


@dataclass(frozen=True, slots=True)
class OwedCase:
    """A case that is owed an answer before its reading."""

    case_id: UUID
    state: CaseState
    attempt: int
    lane: Lane
    result_version: int
    is_due: bool
    """Its deadline is here, or comes before its next try; otherwise it has waited for the model too long."""
    input: CaseInput
    work: CaseWork
    client_reference: str | None
    endpoint_id: UUID | None

    @property
    def is_put_off(self) -> bool:
        """Whether it goes to the compensation queue with its answer: it is late, and in nobody's hands."""
        return self.is_due and self.state in QUEUED


# A short deadline keeps a fifth of its time in reserve, not all of it. Whoever is not tried again before then is due now.
_OWED = text("""
SELECT * FROM (
    SELECT id, state, attempt, lane, result_version, input, work, client_reference, endpoint_id, changed_at, deadline_at,
           CASE WHEN state = ANY(:queued) THEN GREATEST(clock_timestamp(), due_at) ELSE clock_timestamp() END
               >= deadline_at - LEAST(make_interval(secs => :reserve_s), (deadline_at - accepted_at) / 5) AS is_due
    FROM cases WHERE ended_at IS NULL
) AS open_cases
WHERE (result_version = 0 AND is_due)
   OR (result_version = 0 AND state = :waiting AND changed_at <= clock_timestamp() - make_interval(secs => :wait_s))
   OR (result_version > 0 AND is_due AND state = ANY(:queued) AND lane <> 'compensation')
ORDER BY deadline_at LIMIT :limit
""")

# An answer without a move is an event that enters the state it leaves.
_ANSWER = text(f"""
WITH moved AS (
    UPDATE cases SET version = version + 1, changed_at = CASE WHEN :is_put_off THEN clock_timestamp() ELSE changed_at END,
           result_version = COALESCE(CAST(:answer_version AS integer), result_version),
           is_preliminary = is_preliminary OR CAST(:answer_version AS integer) IS NOT NULL,
           state = CASE WHEN :is_put_off THEN 'deferred' ELSE state END,
           lane = CASE WHEN :is_put_off THEN 'compensation' ELSE lane END,
           deferred_because = CASE WHEN :is_put_off THEN CAST(:reason AS text) ELSE deferred_because END,
           due_at = CASE WHEN :is_put_off THEN clock_timestamp() ELSE due_at END,
           tries = CASE WHEN :is_put_off THEN 0 ELSE tries END
    WHERE id = :case_id AND state = :state AND attempt = :attempt AND result_version = :seen_version AND ended_at IS NULL
    RETURNING id, version, state, attempt, result_version
), answered AS (
    INSERT INTO results (case_id, version, kind, outcome, body, attempt, created_at)
    SELECT id, CAST(:answer_version AS integer), 'preliminary', CAST(:outcome AS text), CAST(:body AS text), attempt, clock_timestamp()
    FROM moved WHERE CAST(:answer_version AS integer) IS NOT NULL
), logged AS (
    INSERT INTO case_events (case_id, version, left_state, entered_state, attempt, code, at)
    SELECT id, version, :state, state, attempt, :reason, clock_timestamp() FROM moved
), queued AS (
    INSERT INTO deliveries ({CALLBACK_COLUMNS})
    SELECT CAST(:event_id AS uuid), id, CAST(:endpoint_id AS uuid), CAST(:event_type AS text), result_version, CAST(:callback_body AS text),
           clock_timestamp(), clock_timestamp()
    FROM moved WHERE CAST(:event_id AS uuid) IS NOT NULL
)
SELECT id, pg_notify('{ANSWER_CHANNEL}', id::text) FROM moved
""")  # noqa: S608 - column names and a channel of ours


def owed_cases(ledger: Ledger, *, wait_s: float, reserve_s: float, limit: int) -> list[OwedCase]:
    """Cases that have waited `wait_s` for the model, or whose deadline is less than `reserve_s` away, and have no answer.

    A case that was put off early, its tries spent, is answered by its deadline too, where it stands.
    Also those that were answered, have gone back to a queue since and cannot be in time any more: they are to be put off.
    """
    waiting = POOL_STATES[Pool.INFERENCE].queued.value
    rows = run(
        ledger.relaxed, _OWED, wait_s=wait_s, reserve_s=reserve_s, waiting=waiting, queued=[state.value for state in QUEUED], limit=limit
    )
    return [_owed(row) for row in rows]


def give_answer(ledger: Ledger, case: OwedCase, answer: Answer | None, *, reason: str, callback: Callback | None) -> bool:
    """Write a preliminary answer (None: it has one) and put the case off where it is late; False where it moved since it was read."""
    rows = run(
        ledger.durable,
        _ANSWER,
        case_id=case.case_id,
        state=case.state.value,
        attempt=case.attempt,
        seen_version=case.result_version,
        is_put_off=case.is_put_off,
        reason=reason,
        answer_version=answer.version if answer else None,
        outcome=answer.outcome if answer else None,
        body=answer.body if answer else None,
        **callback_parameters(callback),
    )
    return bool(rows)


def _owed(row: Row[Any]) -> OwedCase:
    return OwedCase(
        case_id=row.id,
        state=CaseState(row.state),
        attempt=row.attempt,
        lane=Lane(row.lane),
        result_version=row.result_version,
        is_due=row.is_due,
        input=CaseInput.model_validate(row.input, extra="ignore"),
        work=CaseWork.model_validate(row.work, extra="ignore"),
        client_reference=row.client_reference,
        endpoint_id=row.endpoint_id,
    )
