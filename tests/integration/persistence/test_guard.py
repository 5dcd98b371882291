"""Answers by the clock: who is owed one, and what is written, under whatever happens meanwhile."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from pipeline.cases.states import CaseState
from pipeline.errors import StaleCompletion
from pipeline.flow import Lane, Pool
from pipeline.persistence.ledger.claims import Claimed, claim_cases
from pipeline.persistence.ledger.compensation import (
    MOST_COMPENSATION_ATTEMPTS,
    PutOff,
    ask_retry,
    look_round,
    put_off,
    put_off_cases,
    release,
)
from pipeline.persistence.ledger.engine import Ledger, run
from pipeline.persistence.ledger.guard import OwedCase, give_answer, owed_cases
from pipeline.persistence.ledger.outcomes import Answer, Callback, Ownership
from tests.integration.persistence.singly import complete_case

pytestmark = pytest.mark.services

Cases = Any
"""The factory of `conftest.py`."""
TENANT = UUID(int=1)
PRELIMINARY = Answer(1, "preliminary", "not_yet_read", '{"version": 1}')


def owed(ledger: Ledger) -> list[OwedCase]:
    return owed_cases(ledger, wait_s=10.0, reserve_s=2.0, limit=100)


def move(ledger: Ledger, case_id: UUID, *, waited_s: float = 0.0, left_s: float = 30.0) -> None:
    """Let a case have stood where it stands for so long, and have so long until its deadline."""
    statement = text("""
UPDATE cases SET changed_at = clock_timestamp() - make_interval(secs => :waited_s),
       accepted_at = clock_timestamp() + make_interval(secs => :left_s) - interval '30 seconds',
       deadline_at = clock_timestamp() + make_interval(secs => :left_s) WHERE id = :id""")
    run(ledger.relaxed, statement, id=case_id, waited_s=waited_s, left_s=left_s)


def results(ledger: Ledger, case_id: UUID) -> list[tuple[int, str]]:
    rows = run(ledger.durable, text("SELECT version, kind FROM results WHERE case_id = :id ORDER BY version"), id=case_id)
    return [(row.version, row.kind) for row in rows]


@pytest.mark.parametrize(("waited_s", "is_owed"), [(9.5, False), (10.5, True)])
def test_a_case_that_waits_ten_seconds_for_the_model_is_owed_an_answer_and_stays_in_line(
    ledger: Ledger, cases: Cases, waited_s: float, is_owed: bool
) -> None:
    case_id = cases.queued(Pool.INFERENCE)
    move(ledger, case_id, waited_s=waited_s, left_s=15)

    assert [(case.case_id, case.is_due, case.is_put_off) for case in owed(ledger)] == [(case_id, False, False)] * is_owed


@pytest.mark.parametrize(("left_s", "is_owed"), [(2.5, False), (1.5, True), (-5.0, True)])
@pytest.mark.parametrize("pool", [Pool.INTAKE, Pool.INFERENCE, Pool.REPORTING])
def test_whatever_is_open_two_seconds_before_its_deadline_is_owed_an_answer(
    ledger: Ledger, cases: Cases, pool: Pool, left_s: float, is_owed: bool
) -> None:
    queued, claimed = cases.queued(pool), cases.claimed(pool).case_id
    for case_id in (queued, claimed):
        move(ledger, case_id, left_s=left_s)

    found = {case.case_id: case.is_put_off for case in owed(ledger)}

    # Who holds a case may still finish it; what nobody holds is put off.
    assert found == ({queued: True, claimed: False} if is_owed else {})


@pytest.mark.parametrize(("due_in_s", "is_owed"), [(12.0, False), (14.0, True), (20.0, True)])
def test_who_is_not_tried_again_before_the_answer_is_due_is_owed_it_now(
    ledger: Ledger, cases: Cases, due_in_s: float, is_owed: bool
) -> None:
    case_id = cases.queued(Pool.INTAKE)
    move(ledger, case_id, left_s=15)
    statement = text("UPDATE cases SET due_at = clock_timestamp() + make_interval(secs => :due_in_s) WHERE id = :id")
    run(ledger.relaxed, statement, id=case_id, due_in_s=due_in_s)

    assert [(case.case_id, case.is_due, case.is_put_off) for case in owed(ledger)] == [(case_id, True, True)] * is_owed


def test_a_short_deadline_keeps_a_fifth_of_its_time_in_reserve(ledger: Ledger, cases: Cases) -> None:
    case_id = cases.accepted()
    statement = text("""
UPDATE cases SET accepted_at = clock_timestamp() - make_interval(secs => :spent_s),
       deadline_at = clock_timestamp() - make_interval(secs => :spent_s) + interval '5 seconds' WHERE id = :id""")

    run(ledger.relaxed, statement, id=case_id, spent_s=3.8)
    assert owed(ledger) == []
    run(ledger.relaxed, statement, id=case_id, spent_s=4.2)
    assert [case.case_id for case in owed(ledger)] == [case_id]


def test_a_waiting_case_is_answered_once_and_goes_on(ledger: Ledger, cases: Cases, callback: Callable[[], Callback]) -> None:
    case_id = cases.queued(Pool.INFERENCE)
    move(ledger, case_id, waited_s=11, left_s=15)
    (case,) = owed(ledger)
    event = callback()

    assert give_answer(ledger, case, PRELIMINARY, reason="inference-wait", callback=event)
    assert not give_answer(ledger, case, PRELIMINARY, reason="inference-wait", callback=callback())

    row = cases.row(case_id)
    assert (row.state, row.lane, row.result_version, row.is_preliminary, row.ended_at) == ("awaiting_inference", "routine", 1, True, None)
    assert results(ledger, case_id) == [(1, "preliminary")]
    assert cases.events(case_id)[-1] == (row.version, "awaiting_inference", "awaiting_inference")
    (delivery,) = run(ledger.durable, text("SELECT * FROM deliveries"))
    assert (delivery.id, delivery.result_version) == (event.event_id, 1)
    assert owed(ledger) == []
    # It is still in line, and anybody's to claim.
    assert len(claim_cases(ledger, [case_id], pool=Pool.INFERENCE, worker="w", seen_no=1)) == 1


def test_a_case_that_moved_since_it_was_looked_at_is_left_alone(ledger: Ledger, cases: Cases) -> None:
    case_id = cases.queued(Pool.INFERENCE)
    move(ledger, case_id, waited_s=11, left_s=1)
    (case,) = owed(ledger)
    claim_cases(ledger, [case_id], pool=Pool.INFERENCE, worker="w", seen_no=1)

    assert not give_answer(ledger, case, PRELIMINARY, reason="deadline", callback=None)

    assert (cases.row(case_id).state, results(ledger, case_id)) == ("inferring", [])


def test_a_late_case_in_a_queue_is_answered_and_put_off_in_one_step(ledger: Ledger, cases: Cases) -> None:
    case_id = cases.queued(Pool.INFERENCE)
    move(ledger, case_id, left_s=1)
    (case,) = owed(ledger)

    assert give_answer(ledger, case, PRELIMINARY, reason="deadline", callback=None)

    row = cases.row(case_id)
    assert (row.state, row.lane, row.deferred_because, row.is_preliminary) == ("deferred", "compensation", "deadline", True)
    assert claim_cases(ledger, [case_id], pool=Pool.INFERENCE, worker="w", seen_no=1) == []
    assert owed(ledger) == []


def test_an_answered_case_that_comes_back_late_to_a_queue_is_put_off_without_a_second_answer(ledger: Ledger, cases: Cases) -> None:
    case_id = cases.queued(Pool.INFERENCE)
    move(ledger, case_id, waited_s=11, left_s=15)
    give_answer(ledger, owed(ledger)[0], PRELIMINARY, reason="inference-wait", callback=None)
    move(ledger, case_id, left_s=-1)
    (case,) = owed(ledger)

    assert give_answer(ledger, case, None, reason="deadline", callback=None)

    assert (cases.row(case_id).state, results(ledger, case_id)) == ("deferred", [(1, "preliminary")])


def test_a_final_answer_that_was_under_way_follows_as_version_two_and_drops_the_untold_preliminary_callback(
    ledger: Ledger, cases: Cases, owner: Callable[[Claimed], Ownership], endpoint: Any
) -> None:
    case: Claimed = cases.claimed(Pool.REPORTING)
    move(ledger, case.case_id, left_s=1)
    untold = Callback(UUID(int=77), endpoint.id, "case.preliminary", "{}")
    give_answer(ledger, owed(ledger)[0], PRELIMINARY, reason="deadline", callback=untold)

    with pytest.raises(StaleCompletion):
        complete_case(ledger, owner(case), Answer(1, "final", "nothing_found", "{}"), timeline={}, callback=None)
    told = Callback(UUID(int=78), endpoint.id, "case.completed", "{}")
    complete_case(ledger, owner(case), Answer(2, "final", "nothing_found", "{}"), timeline={}, callback=told)

    assert results(ledger, case.case_id) == [(1, "preliminary"), (2, "final")]
    states = run(ledger.durable, text("SELECT id, state FROM deliveries ORDER BY id"))
    assert [(row.id, row.state) for row in states] == [(untold.event_id, "dropped"), (told.event_id, "pending")]


def deferred(ledger: Ledger, cases: Cases, **changes: Any) -> UUID:
    case_id: UUID = cases.accepted(**changes)
    assert put_off(ledger, PutOff(case_id, 0, CaseState.ACCEPTED, "deadline", 0.0)) is False
    return case_id


def test_put_off_cases_go_back_to_intake_oldest_first_a_try_each(ledger: Ledger, cases: Cases) -> None:
    first, second = deferred(ledger, cases), deferred(ledger, cases)

    rungs = release(ledger, limit=1)

    assert [(rung.case_id, rung.lane) for rung in rungs] == [(first, Lane.COMPENSATION)]
    row = cases.row(first)
    assert (row.state, row.lane, row.compensation_attempts) == ("accepted", "compensation", 1)
    assert cases.row(second).state == "deferred"
    assert claim_cases(ledger, [first], pool=Pool.INTAKE, worker="w", seen_no=1)[0].lane is Lane.COMPENSATION


def test_a_case_waits_for_its_time(ledger: Ledger, cases: Cases) -> None:
    case_id = cases.accepted()
    put_off(ledger, PutOff(case_id, 0, CaseState.ACCEPTED, "deadline", 60.0))

    assert release(ledger, limit=5) == []


def test_after_its_last_try_a_case_is_a_humans_until_somebody_asks_again(ledger: Ledger, cases: Cases) -> None:
    case_id = deferred(ledger, cases)
    went_to_human = None
    for _ in range(MOST_COMPENSATION_ATTEMPTS):
        assert went_to_human is not True
        release(ledger, limit=1)
        went_to_human = put_off(ledger, PutOff(case_id, 0, CaseState.ACCEPTED, "quarantined", 0.0))
    assert went_to_human is True
    assert release(ledger, limit=5) == []
    (listed,) = put_off_cases(ledger, TENANT, limit=10)
    assert (listed.case_id, listed.reason, listed.attempts) == (case_id, "quarantined", MOST_COMPENSATION_ATTEMPTS)
    assert listed.worklist_at is not None

    assert not ask_retry(ledger, case_id, tenant_id=UUID(int=2), actor="key:other")
    assert ask_retry(ledger, case_id, tenant_id=TENANT, actor="key:mine")

    assert [rung.case_id for rung in release(ledger, limit=5)] == [case_id]
    (asked,) = run(ledger.durable, text("SELECT worker FROM case_events WHERE code = 'retry-asked'"))
    assert asked.worker == "key:mine"


def test_a_look_round_counts_who_waits_who_runs_and_what_was_completed(
    ledger: Ledger, cases: Cases, owner: Callable[[Claimed], Ownership], answer: Callable[[int], Answer]
) -> None:
    begun = look_round(ledger, after_id=0).last_id
    cases.accepted()
    deferred(ledger, cases)
    release(ledger, limit=1)
    deferred(ledger, cases)
    complete_case(ledger, owner(cases.claimed(Pool.REPORTING)), answer(1), timeline={}, callback=None)

    room = look_round(ledger, after_id=begun)

    assert (room.waiting_count, room.running_count, room.completed_count) == (1, 1, 1)
    assert look_round(ledger, after_id=room.last_id).completed_count == 0
