"""How a case ends from a process's point of view: the ledger's end, its callback's doorbell, and what is freed."""

import random
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from celery import Celery
from sqlalchemy.engine import Row
from uuid6 import uuid7

from pipeline.callbacks.event import CaseFacts, case_event_body
from pipeline.cases.compensation import retry_delay_s
from pipeline.cases.identity import handles_of
from pipeline.cases.states import CaseState
from pipeline.errors import IdentityMismatch, QueueUnavailable, RejectedInput, SecondreadError
from pipeline.flow import REPORT, Lane
from pipeline.observability import metrics
from pipeline.observability.log import logger
from pipeline.persistence.ledger.claims import Claimed, read_unclaimed
from pipeline.persistence.ledger.compensation import PutOff, put_off
from pipeline.persistence.ledger.outcomes import (
    Answer,
    Callback,
    Completed,
    Completion,
    Ownership,
    cancel_case,
    complete_cases,
    fail_case,
)
from schemas.report import Report
from schemas.webhook import CaseEventType
from schemas.work import CaseWork
from workers.doorbell import Publisher, ring_delivery
from workers.wiring import Services, public_url


@dataclass(frozen=True, slots=True)
class Ending:
    """Which claim ends, where it stood, and what is known of its stages."""

    case: Claimed
    left: CaseState
    timeline: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reported:
    """A case whose report is written, under the claim that it is written by."""

    case: Claimed
    report: Report
    timeline: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Written:
    """What came of a group's commit. Who is in neither has lost its claim: nothing of it was written."""

    stood: Set[UUID]
    refused: Mapping[UUID, RejectedInput] = field(default_factory=dict)
    """Whose claim stood, but what was to be written must not be: they are to fail."""


def complete(app: Celery, services: Services, reported: Sequence[Reported]) -> Written:
    """Write cases' results in one commit, tell their endpoints, free their tensors.

    A result that is another case's is refused. Where the guard gave a preliminary answer while the report was written, the
    report becomes the version after it.
    """
    first = _complete_once(app, services, reported)
    dealt_with = first.ended | first.foreign
    overtaken = [moved for each in reported if each.case.case_id not in dealt_with and (moved := _renumbered(services, each))]
    second = _complete_once(app, services, overtaken) if overtaken else Completed(set(), set())
    return Written(
        first.ended | second.ended,
        {each: IdentityMismatch("the result is another case's", case_id=each, hop=REPORT.name) for each in first.foreign | second.foreign},
    )


def _complete_once(app: Celery, services: Services, reported: Sequence[Reported]) -> Completed:
    completions = {each.case.case_id: _completion(services, each) for each in reported}
    done = complete_cases(services.ledger, list(completions.values()), left=CaseState.POSTPROCESSING, worker=services.worker)
    for each in reported:
        if each.case.case_id in done.ended:
            _after(app, services, each.case, completions[each.case.case_id].callback, outcome=each.report.outcome)
    return done


def _renumbered(services: Services, reported: Reported) -> Reported | None:
    """The same report as the version after a preliminary answer that came first; None where the claim is gone."""
    now = read_unclaimed(services.ledger, reported.case.case_id)
    if now is None or now.attempt != reported.case.attempt or now.result_version < reported.report.version:
        return None
    report = reported.report.model_copy(update={"version": now.result_version + 1})
    return Reported(now, report, reported.timeline)


def _completion(services: Services, reported: Reported) -> Completion:
    case, report = reported.case, reported.report
    facts = CaseFacts(
        case.case_id, "completed", case.lane, report.version, case.client_reference, result_kind=report.kind, outcome=report.outcome
    )
    callback = callback_for(services, case.endpoint_id, "case.completed" if report.kind == "final" else "case.amended", facts)
    answer = Answer(report.version, report.kind, report.outcome, report.model_dump_json())
    return Completion(case.case_id, case.attempt, answer, reported.timeline, callback)


def fail(app: Celery, services: Services, ending: Ending, error: SecondreadError) -> None:
    """Write a case's coded failure, tell its endpoint, free its tensors.

    Raises
    ------
    StaleCompletion
        The claim has passed on: nothing was written, nothing freed.
    """
    case = ending.case
    # What the ledger's JSON cannot hold must not keep a case from its end.
    facts_of_error = {key: str(value).replace("\0", "?").encode(errors="replace").decode() for key, value in error.facts.items()}
    failure = {"code": error.code, "title": error.title, "advice": error.advice, "facts": facts_of_error}
    facts = CaseFacts(case.case_id, "failed", case.lane, case.result_version, case.client_reference)
    callback = callback_for(services, case.endpoint_id, "case.failed", facts)
    owner = Ownership(case.case_id, case.attempt, ending.left, services.worker)
    fail_case(services.ledger, owner, failure, timeline=ending.timeline, callback=callback)
    _after(app, services, case, callback, outcome="failed")


def try_later(services: Services, case: Claimed, left: CaseState, *, reason: str, to_human: bool = False) -> None:
    """Put a case off until its next try in the compensation lane, or hand it to the human worklist: after the last, or at once.

    Nothing happens where it has moved meanwhile.
    """
    delay_s = retry_delay_s(case.compensation_attempts, jitter=random.random)
    at_human = put_off(services.ledger, PutOff(case.case_id, case.attempt, left, reason, delay_s, to_human))
    if at_human is None:
        return
    if at_human:
        metrics.WORKLISTED.inc()
    if case.lane is not Lane.COMPENSATION:
        metrics.CASES_PUT_OFF.labels(case.lane.value, reason).inc()
    logger().warning("put_off", reason=reason, tries=case.compensation_attempts, delay_s=round(delay_s), at_human=at_human)


def cancel(app: Publisher, services: Services, row: Row[Any]) -> None:
    """End a case on its client's wish: out of the line, its tensors freed, its endpoint told.

    Raises
    ------
    StaleCompletion
        The case moved since the row was read.
    """
    lane = Lane(row.lane)
    callback = callback_for(
        services, row.endpoint_id, "case.cancelled", CaseFacts(row.id, "cancelled", lane, row.result_version, row.client_reference)
    )
    cancel_case(services.ledger, Ownership(row.id, row.attempt, CaseState(row.state)), callback=callback)
    if callback is not None:
        ring_delivery(app, callback.event_id)
    case = read_unclaimed(services.ledger, row.id)
    if case and case.work.prepared:
        try:
            services.line(case.work.prepared.model).leave([row.id])
        except QueueUnavailable as error:
            # The claim will find that the case has ended.
            logger().warning("not_out_of_line", code=error.code)
        free_tensors(services, row.id, case.work)


def free_tensors(services: Services, case_id: UUID, work: CaseWork) -> None:
    """Let go of everything that a case holds in the tensor store; what its row names of another case is the other's to free."""
    for handle in handles_of(work):
        if handle.case_id == case_id:
            services.tensors.free(handle)


def callback_for(services: Services, endpoint_id: UUID | None, event_type: CaseEventType, facts: CaseFacts) -> Callback | None:
    """The event that a case's endpoint is owed; None where the client named no endpoint."""
    if endpoint_id is None:
        return None
    body = case_event_body(event_type, facts, at=services.clock.now(), public_url=public_url(services.settings))
    return Callback(event_id=UUID(bytes=uuid7().bytes), endpoint_id=endpoint_id, event_type=event_type, body=body.decode())


def _after(app: Celery, services: Services, case: Claimed, callback: Callback | None, *, outcome: str) -> None:
    now = services.clock.now()
    metrics.CASE_SECONDS.labels(case.lane.value, outcome).observe((now - case.accepted_at).total_seconds())
    if now > case.deadline_at:
        metrics.CASES_LATE.labels(case.lane.value).inc()
    if callback is not None:
        ring_delivery(app, callback.event_id)
    free_tensors(services, case.case_id, case.work)
