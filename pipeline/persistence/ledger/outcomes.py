"""How a case ends: its result version, its failure, its cancellation, and the callback that says so.

Results, state changes, events and callback rows are one durable statement; cases that finish together share it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.sql.elements import TextClause

from pipeline.cases.states import CaseState, require_transition
from pipeline.errors import StaleCompletion
from pipeline.persistence.ledger.engine import Ledger, run
from schemas.report import ResultKind

ANSWER_CHANNEL = "case_answered"
"""Rung by PostgreSQL when a case got an answer; the payload is the case id. Long polls listen to it."""


@dataclass(frozen=True, slots=True)
class Callback:
    """One event that a webhook endpoint will be told; its body is built once."""

    event_id: UUID
    endpoint_id: UUID
    event_type: str
    body: str


@dataclass(frozen=True, slots=True)
class Answer:
    """One version of a case's result."""

    version: int
    kind: ResultKind
    outcome: str
    body: str


@dataclass(frozen=True, slots=True)
class Completion:
    """One finished case: its claim, its answer, the times of its last stages, and whom to tell."""

    case_id: UUID
    attempt: int
    answer: Answer
    timeline: dict[str, Any]
    callback: Callback | None = None


@dataclass(frozen=True, slots=True)
class Completed:
    """What came of a commit of results."""

    ended: set[UUID]
    foreign: set[UUID]
    """Cases that were about to get the result of another case, or of other images: withheld."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """Under which claim an end is written."""

    case_id: UUID
    attempt: int
    left: CaseState
    worker: str | None = None


# What an endpoint has not been told yet is not told any more once there is a final answer.
_OVERTAKEN = """
    UPDATE deliveries SET state = 'dropped', ended_at = clock_timestamp() FROM moved
    WHERE deliveries.case_id = moved.id AND deliveries.event_type IN ('case.preliminary', 'case.deferred') AND deliveries.state = 'pending'
"""
CALLBACK_COLUMNS = "id, case_id, endpoint_id, event_type, result_version, body, due_at, created_at"

# What a report says of itself, against the row that it is written for. Without a prepared case the chain has no link.
_IS_OWN = """
    said->>'case_id' = 'case_' || replace(cases.id::text, '-', '')
    AND said->>'input_digest' = encode(sha256(convert_to(COALESCE((
        SELECT string_agg(link->>'digest', '' ORDER BY place)
        FROM jsonb_array_elements(work#>'{prepared,instances}') WITH ORDINALITY AS links(link, place)), ''), 'UTF8')), 'hex')
    AND said->>'model_input_digest' IS NOT DISTINCT FROM work#>>'{prepared,model_input,digest}'
    AND said->>'model_output_digest' IS NOT DISTINCT FROM work#>>'{inferred,probability,digest}'
"""

_COMPLETE = text(f"""
WITH done AS (
    SELECT *, CAST(body AS jsonb) AS said
    FROM unnest(CAST(:ids AS uuid[]), CAST(:attempts AS integer[]), CAST(:versions AS integer[]), CAST(:kinds AS text[]),
        CAST(:outcomes AS text[]), CAST(:bodies AS text[]), CAST(:timelines AS text[]), CAST(:event_ids AS uuid[]),
        CAST(:endpoint_ids AS uuid[]), CAST(:event_types AS text[]), CAST(:callback_bodies AS text[]))
    AS done(case_id, fence, answer_version, kind, outcome, body, stages, event_id, endpoint_id, event_type, callback_body)
), held AS (
    SELECT case_id, fence, answer_version, stages, COALESCE({_IS_OWN}, false) AS is_own FROM done JOIN cases ON cases.id = case_id
    WHERE cases.attempt = fence AND cases.state = :left AND cases.result_version = answer_version - 1
), moved AS (
    UPDATE cases SET state = 'completed', claimed_by = NULL, lease_until = NULL, tries = 0, changed_at = clock_timestamp(),
           ended_at = clock_timestamp(), version = cases.version + 1, result_version = answer_version, is_preliminary = false,
           timeline = timeline || CAST(stages AS jsonb)
    FROM held
    WHERE id = case_id AND attempt = fence AND state = :left AND result_version = answer_version - 1 AND is_own
    RETURNING cases.id, cases.version, cases.attempt, cases.changed_at
), answered AS (
    INSERT INTO results (case_id, version, kind, outcome, body, attempt, created_at)
    SELECT id, answer_version, kind, outcome, body, attempt, changed_at FROM moved JOIN done ON id = case_id
), logged AS (
    INSERT INTO case_events (case_id, version, left_state, entered_state, attempt, worker, code, at)
    SELECT id, version, :left, 'completed', attempt, :worker, outcome, changed_at FROM moved JOIN done ON id = case_id
), overtaken AS ({_OVERTAKEN}), queued AS (
    INSERT INTO deliveries ({CALLBACK_COLUMNS})
    SELECT event_id, id, endpoint_id, event_type, answer_version, callback_body, changed_at, changed_at
    FROM moved JOIN done ON id = case_id WHERE event_id IS NOT NULL
)
SELECT id, true AS is_own, CAST(pg_notify('{ANSWER_CHANNEL}', id::text) AS text) FROM moved
UNION ALL SELECT case_id, false, NULL FROM held WHERE NOT is_own
""")  # noqa: S608 - column names and a channel of ours

_END = text(f"""
WITH moved AS (
    UPDATE cases SET state = :entered, claimed_by = NULL, lease_until = NULL, changed_at = clock_timestamp(),
           ended_at = clock_timestamp(), version = version + 1, failure = CAST(:failure AS jsonb),
           timeline = timeline || CAST(:timeline AS jsonb)
    WHERE id = :case_id AND attempt = :attempt AND state = :left
    RETURNING *
), logged AS (
    INSERT INTO case_events (case_id, version, left_state, entered_state, attempt, worker, code, at)
    SELECT id, version, :left, :entered, attempt, :worker, :code, changed_at FROM moved
), overtaken AS ({_OVERTAKEN}), queued AS (
    INSERT INTO deliveries ({CALLBACK_COLUMNS})
    SELECT CAST(:event_id AS uuid), id, CAST(:endpoint_id AS uuid), :event_type, result_version, :callback_body, changed_at, changed_at
    FROM moved WHERE CAST(:event_id AS uuid) IS NOT NULL
)
SELECT id, version, pg_notify('{ANSWER_CHANNEL}', id::text) FROM moved
""")  # noqa: S608 - column names and a channel of ours


def complete_cases(ledger: Ledger, completions: Sequence[Completion], *, left: CaseState, worker: str | None) -> Completed:
    """Write the results of cases and end them, all in one commit.

    Each body is compared with the row that it is written for: the case that it names, and the digests of what was received,
    what the model was shown and what it answered.

    Returns
    -------
    Those that were ended, and those whose claim stood but whose result is another's. Of the latter nothing was written, nor
    of the rest: another worker has claimed the case since, it was cancelled, or another result version came first.
    """
    require_transition(left, CaseState.COMPLETED)
    answers = [completion.answer for completion in completions]
    callbacks = [completion.callback for completion in completions]
    rows = run(
        ledger.durable,
        _COMPLETE,
        ids=[completion.case_id for completion in completions],
        attempts=[completion.attempt for completion in completions],
        timelines=[json.dumps(completion.timeline) for completion in completions],
        versions=[answer.version for answer in answers],
        kinds=[answer.kind for answer in answers],
        outcomes=[answer.outcome for answer in answers],
        bodies=[answer.body for answer in answers],
        event_ids=[callback.event_id if callback else None for callback in callbacks],
        endpoint_ids=[callback.endpoint_id if callback else None for callback in callbacks],
        event_types=[callback.event_type if callback else None for callback in callbacks],
        callback_bodies=[callback.body if callback else None for callback in callbacks],
        left=left.value,
        worker=worker,
    )
    return Completed({row.id for row in rows if row.is_own}, {row.id for row in rows if not row.is_own})


def fail_case(ledger: Ledger, owner: Ownership, failure: dict[str, Any], *, timeline: dict[str, Any], callback: Callback | None) -> None:
    """End a case with a coded failure, if the claim still stands.

    Raises
    ------
    StaleCompletion
        The claim has passed to another worker, or the case has ended otherwise.
    """
    require_transition(owner.left, CaseState.FAILED)
    end = {"entered": CaseState.FAILED.value, "failure": json.dumps(failure), "code": failure["code"]}
    _end(ledger, _END, owner, callback, timeline=json.dumps(timeline), **end)


def cancel_case(ledger: Ledger, owner: Ownership, *, callback: Callback | None) -> None:
    """End a case on its client's wish; whoever works on it will find its claim gone.

    Raises
    ------
    StaleCompletion
        The case moved meanwhile: read it again.
    """
    require_transition(owner.left, CaseState.CANCELLED)
    _end(ledger, _END, owner, callback, entered=CaseState.CANCELLED.value, failure=None, code="cancelled", timeline="{}")


def callback_parameters(callback: Callback | None) -> dict[str, Any]:
    """A callback as the parameters of the statement that queues it; all None where nobody is to be told."""
    return {
        "event_id": callback.event_id if callback else None,
        "endpoint_id": callback.endpoint_id if callback else None,
        "event_type": callback.event_type if callback else None,
        "callback_body": callback.body if callback else None,
    }


def _end(ledger: Ledger, statement: TextClause, owner: Ownership, callback: Callback | None, **parameters: Any) -> None:
    moved = run(
        ledger.durable,
        statement,
        case_id=owner.case_id,
        attempt=owner.attempt,
        left=owner.left.value,
        worker=owner.worker,
        **callback_parameters(callback),
        **parameters,
    )
    if not moved:
        raise StaleCompletion("the claim no longer stands", case_id=owner.case_id, attempt=owner.attempt)
