"""How a case ends: result, state, event and callback in one commit, under a claim that still stands."""

import select
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg2
import psycopg2.extensions
import pytest
from sqlalchemy import text

from pipeline.cases.states import CaseState, ForbiddenTransition
from pipeline.errors import StaleCompletion
from pipeline.flow import Pool
from pipeline.persistence.ledger.claims import Claimed, claim_cases
from pipeline.persistence.ledger.engine import Ledger, run
from pipeline.persistence.ledger.outcomes import (
    ANSWER_CHANNEL,
    Answer,
    Callback,
    Completion,
    Ownership,
    cancel_case,
    complete_cases,
    fail_case,
)
from tests.integration.persistence.answers import answer_of
from tests.integration.persistence.singly import complete_case

pytestmark = pytest.mark.services

Cases = Any
"""The factory of `conftest.py`."""
Owner = Callable[[Claimed], Ownership]
MakeAnswer = Callable[[Claimed, int], Answer]
MakeCallback = Callable[[], Callback]
FAILURE = {"code": "rejected", "title": "t", "advice": "a", "facts": {"size": "1"}}


@pytest.fixture
def answered(ledger_url: str) -> Iterator[Callable[[], list[str]]]:
    """Listens as a long poll does; gives the case ids that were told, waiting a second for the first."""
    connection = psycopg2.connect(ledger_url.replace("+psycopg2", ""))
    connection.set_isolation_level(psycopg2.extensions.ISOLATION_LEVEL_AUTOCOMMIT)
    with connection.cursor() as cursor:
        cursor.execute(f"LISTEN {ANSWER_CHANNEL}")

    def told() -> list[str]:
        if not connection.notifies:
            select.select([connection], [], [], 1.0)
            connection.poll()
        payloads = [notice.payload for notice in connection.notifies]
        connection.notifies.clear()
        return payloads

    yield told
    connection.close()


def results(ledger: Ledger, case_id: UUID) -> list[tuple[int, str, str]]:
    rows = run(ledger.durable, text("SELECT * FROM results WHERE case_id = :id ORDER BY version"), id=case_id)
    return [(row.version, row.kind, row.body) for row in rows]


def give_preliminary(ledger: Ledger, case: Claimed) -> None:
    """A first answer while the case goes on."""
    run(
        ledger.durable,
        text("INSERT INTO results VALUES (:id, 1, 'preliminary', 'not_assessable', '{\"version\": 1}', 1, now())"),
        id=case.case_id,
    )
    run(ledger.durable, text("UPDATE cases SET result_version = 1, is_preliminary = true WHERE id = :id"), id=case.case_id)


def test_a_completed_case_has_its_result_and_nobody_holds_it(ledger: Ledger, cases: Cases, owner: Owner, answer: MakeAnswer) -> None:
    case = cases.claimed(Pool.REPORTING)

    complete_case(ledger, owner(case), answer(case, 1), timeline={"report": {"left_at": "x"}}, callback=None)

    row = cases.row(case.case_id)
    assert (row.state, row.result_version, row.is_preliminary, row.claimed_by, row.lease_until) == ("completed", 1, False, None, None)
    assert row.timeline == {"report": {"left_at": "x"}}
    assert row.ended_at - row.changed_at < timedelta(milliseconds=10)
    assert results(ledger, case.case_id) == [(1, "final", answer(case, 1).body)]
    assert cases.events(case.case_id)[-1] == (row.version, "postprocessing", "completed")


def test_result_state_event_and_callback_are_one_commit(
    ledger: Ledger, cases: Cases, owner: Owner, answer: MakeAnswer, callback: MakeCallback
) -> None:
    case, event = cases.claimed(Pool.REPORTING), callback()

    complete_case(ledger, owner(case), answer(case, 1), timeline={}, callback=event)

    (row,) = run(
        ledger.durable,
        text("""
SELECT c.xmin::text AS of_case, r.xmin::text AS of_result, e.xmin::text AS of_event, d.xmin::text AS of_delivery, d.*
FROM cases c JOIN results r ON r.case_id = c.id JOIN case_events e ON e.case_id = c.id AND e.version = c.version
JOIN deliveries d ON d.case_id = c.id WHERE c.id = :id"""),
        id=case.case_id,
    )
    assert row.of_case == row.of_result == row.of_event == row.of_delivery
    assert (row.id, row.endpoint_id, row.event_type, row.body) == (event.event_id, event.endpoint_id, event.event_type, event.body)
    assert (row.result_version, row.state, row.attempt, row.due_at) == (1, "pending", 0, row.created_at)


def test_a_case_without_a_callback_owes_nobody_anything(ledger: Ledger, cases: Cases, owner: Owner, answer: MakeAnswer) -> None:
    case = cases.claimed(Pool.REPORTING)
    complete_case(ledger, owner(case), answer(case, 1), timeline={}, callback=None)

    assert cases.count("deliveries") == 0


def test_whoever_waits_for_the_answer_is_told(
    ledger: Ledger, cases: Cases, owner: Owner, answer: MakeAnswer, answered: Callable[[], list[str]]
) -> None:
    case = cases.claimed(Pool.REPORTING)

    complete_case(ledger, owner(case), answer(case, 1), timeline={}, callback=None)

    assert answered() == [str(case.case_id)]


def test_whoever_waits_is_told_of_failures_and_cancellations_too(
    ledger: Ledger, cases: Cases, owner: Owner, answered: Callable[[], list[str]]
) -> None:
    failing, cancelled = cases.claimed(Pool.REPORTING), cases.accepted()

    fail_case(ledger, owner(failing), FAILURE, timeline={}, callback=None)
    assert answered() == [str(failing.case_id)]
    cancel_case(ledger, Ownership(cancelled, 0, CaseState.ACCEPTED), callback=None)
    assert answered() == [str(cancelled)]


def test_a_refused_completion_leaves_nothing_and_tells_nobody(
    ledger: Ledger, cases: Cases, owner: Owner, answer: MakeAnswer, callback: MakeCallback
) -> None:
    stale = cases.claimed(Pool.REPORTING, worker="w1")
    cases.lapse(stale.case_id)
    claim_cases(ledger, [stale.case_id], pool=Pool.REPORTING, worker="w2", seen_no=1)
    before = cases.row(stale.case_id)

    with pytest.raises(StaleCompletion):
        complete_case(ledger, owner(stale), answer(stale, 1), timeline={}, callback=callback())

    assert cases.row(stale.case_id) == before
    assert [cases.count(table) for table in ("results", "deliveries")] == [0, 0]


def test_the_worker_that_took_over_writes_the_one_result(ledger: Ledger, cases: Cases, owner: Owner, answer: MakeAnswer) -> None:
    first = cases.claimed(Pool.REPORTING, worker="w1")
    cases.lapse(first.case_id)
    (second,) = claim_cases(ledger, [first.case_id], pool=Pool.REPORTING, worker="w2", seen_no=1)
    complete_case(ledger, owner(second), answer(second, 1), timeline={}, callback=None)

    with pytest.raises(StaleCompletion):
        complete_case(ledger, owner(first), answer(first, 1), timeline={}, callback=None)

    assert len(results(ledger, first.case_id)) == 1


def test_a_completion_is_written_once(ledger: Ledger, cases: Cases, owner: Owner, answer: MakeAnswer) -> None:
    case = cases.claimed(Pool.REPORTING)
    complete_case(ledger, owner(case), answer(case, 1), timeline={}, callback=None)

    for version in (1, 2):
        with pytest.raises(StaleCompletion):
            complete_case(ledger, owner(case), answer(case, version), timeline={}, callback=None)

    assert results(ledger, case.case_id) == [(1, "final", answer(case, 1).body)]


@pytest.mark.parametrize("version", [0, 2, 3])
def test_the_first_result_is_version_one(ledger: Ledger, cases: Cases, owner: Owner, answer: MakeAnswer, version: int) -> None:
    case = cases.claimed(Pool.REPORTING)

    with pytest.raises(StaleCompletion):
        complete_case(ledger, owner(case), answer(case, version), timeline={}, callback=None)

    assert (cases.row(case.case_id).state, results(ledger, case.case_id)) == ("postprocessing", [])


def test_a_final_answer_after_a_preliminary_one_is_version_two_and_leaves_the_first_alone(
    ledger: Ledger, cases: Cases, owner: Owner, answer: MakeAnswer
) -> None:
    case = cases.claimed(Pool.REPORTING)
    give_preliminary(ledger, case)

    with pytest.raises(StaleCompletion):
        complete_case(ledger, owner(case), answer(case, 1), timeline={}, callback=None)
    complete_case(ledger, owner(case), answer(case, 2), timeline={}, callback=None)

    row = cases.row(case.case_id)
    assert (row.result_version, row.is_preliminary) == (2, False)
    assert results(ledger, case.case_id) == [(1, "preliminary", '{"version": 1}'), (2, "amended", answer(case, 2).body)]


def test_cases_that_finish_together_end_in_one_commit_each_with_its_own_answer(
    ledger: Ledger, cases: Cases, answer: MakeAnswer, callback: MakeCallback, answered: Callable[[], list[str]]
) -> None:
    first, second, third = (cases.claimed(Pool.REPORTING) for _ in range(3))
    give_preliminary(ledger, second)
    event = callback()

    written = complete_cases(
        ledger,
        [
            Completion(first.case_id, first.attempt, answer(first, 1), {"report": {"left_at": "1"}}),
            Completion(second.case_id, second.attempt, answer(second, 2), {"report": {"left_at": "2"}}, event),
            Completion(third.case_id, third.attempt - 1, answer(third, 1), {}, callback()),
        ],
        left=CaseState.POSTPROCESSING,
        worker="w1",
    )

    assert (written.ended, written.foreign) == ({first.case_id, second.case_id}, set())
    rows = [cases.row(case.case_id) for case in (first, second, third)]
    assert [row.state for row in rows] == ["completed", "completed", "postprocessing"]
    assert [row.timeline for row in rows[:2]] == [{"report": {"left_at": "1"}}, {"report": {"left_at": "2"}}]
    assert results(ledger, first.case_id) == [(1, "final", answer(first, 1).body)]
    assert results(ledger, second.case_id)[-1] == (2, "amended", answer(second, 2).body)
    assert results(ledger, third.case_id) == []
    (owed,) = run(ledger.durable, text("SELECT * FROM deliveries"))
    assert (owed.id, owed.case_id, owed.result_version) == (event.event_id, second.case_id, 2)
    assert sorted(answered()) == sorted([str(first.case_id), str(second.case_id)])
    (commits,) = run(
        ledger.durable,
        text("SELECT count(DISTINCT xmin::text) AS n FROM cases WHERE id = ANY(:ids)"),
        ids=[first.case_id, second.case_id],
    )
    assert commits.n == 1


@pytest.mark.parametrize("left", [CaseState.ACCEPTED, CaseState.FETCHING, CaseState.INFERRING, CaseState.AWAITING_REPORT])
def test_no_case_is_completed_but_by_reporting(ledger: Ledger, left: CaseState) -> None:
    with pytest.raises(ForbiddenTransition):
        complete_case(ledger, Ownership(UUID(int=9), 1, left), answer_of(UUID(int=9)), timeline={}, callback=None)


@pytest.mark.parametrize("left", [CaseState.COMPLETED, CaseState.FAILED, CaseState.CANCELLED])
def test_what_has_ended_does_not_end_again(ledger: Ledger, left: CaseState) -> None:
    owner = Ownership(UUID(int=9), 1, left)

    with pytest.raises(ForbiddenTransition):
        fail_case(ledger, owner, FAILURE, timeline={}, callback=None)
    with pytest.raises(ForbiddenTransition):
        cancel_case(ledger, owner, callback=None)


def test_a_failure_says_why_for_good(ledger: Ledger, cases: Cases, callback: MakeCallback) -> None:
    case, event = cases.claimed(), callback()

    fail_case(
        ledger,
        Ownership(case.case_id, case.attempt, CaseState.FETCHING, "w1"),
        FAILURE,
        timeline={"fetch": {"left_at": "x"}},
        callback=event,
    )

    row = cases.row(case.case_id)
    assert (row.state, row.failure, row.result_version, row.claimed_by, row.lease_until) == ("failed", FAILURE, 0, None, None)
    assert row.timeline == {"fetch": {"left_at": "x"}}
    assert row.ended_at - row.changed_at < timedelta(milliseconds=10)
    (logged,) = run(ledger.durable, text("SELECT * FROM case_events WHERE entered_state = 'failed'"))
    assert (logged.left_state, logged.code, logged.worker, logged.version) == ("fetching", "rejected", "w1", row.version)
    (owed,) = run(ledger.durable, text("SELECT * FROM deliveries"))
    assert (owed.id, owed.result_version) == (event.event_id, 0)


def test_a_queued_case_can_be_failed_by_the_sweeper(ledger: Ledger, cases: Cases) -> None:
    case_id = cases.queued(Pool.INFERENCE)

    fail_case(ledger, Ownership(case_id, 1, CaseState.AWAITING_INFERENCE), FAILURE, timeline={}, callback=None)

    assert cases.events(case_id)[-1][1:] == ("awaiting_inference", "failed")


def test_a_cancelled_case_refuses_its_completion(ledger: Ledger, cases: Cases, owner: Owner, answer: MakeAnswer) -> None:
    case = cases.claimed(Pool.REPORTING)

    cancel_case(ledger, Ownership(case.case_id, case.attempt, CaseState.POSTPROCESSING), callback=None)

    with pytest.raises(StaleCompletion):
        complete_case(ledger, owner(case), answer(case, 1), timeline={}, callback=None)
    row = cases.row(case.case_id)
    assert (row.state, row.failure, row.result_version) == ("cancelled", None, 0)
    assert row.ended_at is not None


def test_a_cancellation_of_a_case_that_moved_meanwhile_is_refused(ledger: Ledger, cases: Cases) -> None:
    case = cases.claimed()

    with pytest.raises(StaleCompletion):
        cancel_case(ledger, Ownership(case.case_id, 0, CaseState.ACCEPTED), callback=None)

    assert cases.row(case.case_id).state == "fetching"
