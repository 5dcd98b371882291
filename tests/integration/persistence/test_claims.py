"""Claim, fence, lease, hand on and give back, against a real PostgreSQL."""

import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from pipeline.cases.states import CaseState, ForbiddenTransition
from pipeline.deadline import utc_now
from pipeline.errors import StaleCompletion
from pipeline.flow import Lane, Pool
from pipeline.persistence.ledger.claims import (
    LEASE_S,
    MAX_TRIES,
    MOST_ATTEMPTS,
    Claimed,
    HandOn,
    Return,
    Rung,
    claim_cases,
    count_cases_of,
    give_back,
    hand_on,
    read_unclaimed,
    renew_leases,
)
from pipeline.persistence.ledger.engine import Ledger, run
from pipeline.persistence.ledger.outcomes import Ownership, cancel_case, fail_case
from schemas.work import CaseWork

pytestmark = pytest.mark.services

Cases = Any
"""The factory of `conftest.py`."""
SUSPECT = Return(CaseState.FETCHING, CaseState.ACCEPTED, code="decoder-crashed")


def claim(ledger: Ledger, *case_ids: UUID, worker: str = "w1", pool: Pool = Pool.INTAKE, seen_no: int = 1) -> list[Claimed]:
    return claim_cases(ledger, case_ids, pool=pool, worker=worker, seen_no=seen_no)


def fetched(ledger: Ledger, *done: HandOn, worker: str = "w1") -> list[Rung]:
    return hand_on(ledger, done, left=CaseState.FETCHING, entered=CaseState.AWAITING_INFERENCE, worker=worker)


def bare(case: Claimed) -> HandOn:
    return HandOn(case.case_id, case.attempt, {}, {})


def lease_left_s(ledger: Ledger, case_id: UUID) -> float:
    (row,) = run(
        ledger.relaxed,
        text("SELECT CAST(EXTRACT(EPOCH FROM lease_until - clock_timestamp()) AS float) AS left_s FROM cases WHERE id = :id"),
        id=case_id,
    )
    left_s: float = row.left_s
    return left_s


def test_a_claim_tells_the_worker_all_that_it_needs(ledger: Ledger, cases: Cases) -> None:
    new = cases.new(lane=Lane.URGENT, client_reference="order-17", endpoint_id=uuid4())
    case_id = cases.accepted(**{name: getattr(new, name) for name in new.__slots__})

    assert claim(ledger, case_id) == [
        Claimed(
            case_id=case_id,
            attempt=1,
            tries=1,
            strikes=0,
            lane=Lane.URGENT,
            accepted_at=new.accepted_at,
            deadline_at=new.deadline_at,
            input=new.input,
            work=CaseWork(),
            result_version=0,
            is_preliminary=False,
            compensation_attempts=0,
            client_reference="order-17",
            endpoint_id=new.endpoint_id,
            due_s=0.0,
        )
    ]


def test_what_is_left_is_told_by_the_databases_clock(ledger: Ledger, cases: Cases) -> None:
    late = cases.accepted(deadline_at=utc_now() - timedelta(seconds=100), accepted_at=utc_now() - timedelta(seconds=130))
    routine, put_off = cases.accepted(), cases.accepted(lane=Lane.COMPENSATION)

    left_s = {case.case_id: case.left_s for case in claim(ledger, routine, late, put_off)}

    assert left_s[routine] == pytest.approx(30, abs=10)
    assert left_s[late] == pytest.approx(-100, abs=10)
    assert left_s[put_off] == math.inf


def test_a_claim_is_counted_and_leased_before_any_work(ledger: Ledger, cases: Cases) -> None:
    case_id = cases.accepted()

    claim(ledger, case_id, seen_no=17)

    row = cases.row(case_id)
    assert (row.state, row.attempt, row.tries, row.claimed_by, row.version) == ("fetching", 1, 1, "w1", 2)
    assert LEASE_S - 1 < lease_left_s(ledger, case_id) <= LEASE_S
    (event,) = run(ledger.relaxed, text("SELECT * FROM case_events WHERE case_id = :id AND version = 2"), id=case_id)
    assert (event.left_state, event.entered_state, event.attempt, event.worker, event.publish_no) == ("accepted", "fetching", 1, "w1", 17)


@pytest.mark.parametrize("pool", [Pool.INFERENCE, Pool.REPORTING])
def test_a_pool_gets_no_case_that_is_queued_for_another(ledger: Ledger, cases: Cases, pool: Pool) -> None:
    case_id = cases.accepted()

    assert claim(ledger, case_id, pool=pool) == []
    assert cases.row(case_id).attempt == 0


def test_a_claimed_case_is_nobody_elses(ledger: Ledger, cases: Cases) -> None:
    case_id = cases.accepted()
    claim(ledger, case_id, worker="w1")

    assert claim(ledger, case_id, worker="w2") == []
    assert cases.row(case_id).claimed_by == "w1"


def test_an_unknown_case_is_not_claimed(ledger: Ledger) -> None:
    assert claim(ledger, uuid4()) == []
    assert claim(ledger) == []


@pytest.mark.parametrize("pool", [Pool.INTAKE, Pool.INFERENCE, Pool.REPORTING])
def test_every_pool_claims_from_its_own_queue(ledger: Ledger, cases: Cases, pool: Pool) -> None:
    assert len(claim(ledger, cases.queued(pool), pool=pool)) == 1


def test_of_eight_claimers_one_gets_each_of_two_hundred_cases(ledger: Ledger, cases: Cases) -> None:
    case_ids = [cases.accepted() for _ in range(200)]

    def work(number: int) -> list[UUID]:
        # Each begins elsewhere, so that they meet in the middle.
        mine = case_ids[number * 25 :] + case_ids[: number * 25]
        return [got.case_id for case_id in mine for got in claim(ledger, case_id, worker=f"w{number}")]

    with ThreadPoolExecutor(8) as pool:
        claimed = Counter(case_id for got in pool.map(work, range(8)) for case_id in got)

    assert claimed == dict.fromkeys(case_ids, 1)


def test_of_claimers_of_overlapping_batches_one_gets_each_case(ledger: Ledger, cases: Cases) -> None:
    case_ids = [cases.accepted() for _ in range(64)]

    def work(number: int) -> list[UUID]:
        # In opposite orders: what locks as it comes would end in a deadlock.
        batch = case_ids[::-1] if number % 2 else case_ids
        return [got.case_id for got in claim(ledger, *batch, worker=f"w{number}")]

    with ThreadPoolExecutor(8) as pool:
        claimed = Counter(case_id for got in pool.map(work, range(16)) for case_id in got)

    assert claimed == dict.fromkeys(case_ids, 1)


def test_a_lapsed_lease_is_anybodys_and_the_attempt_goes_up(ledger: Ledger, cases: Cases) -> None:
    first = cases.claimed(worker="w1")
    cases.lapse(first.case_id)

    (second,) = claim(ledger, first.case_id, worker="w2")

    assert (second.attempt, second.tries, second.strikes) == (2, 2, 1)
    assert cases.row(first.case_id).claimed_by == "w2"


def test_a_lapsed_claim_is_given_up_and_taken_anew_in_the_history(ledger: Ledger, cases: Cases) -> None:
    first = cases.claimed(worker="w1")
    cases.lapse(first.case_id)

    claim(ledger, first.case_id, worker="w2")

    assert cases.events(first.case_id) == [
        (1, None, "accepted"),
        (2, "accepted", "fetching"),
        (3, "fetching", "accepted"),
        (4, "accepted", "fetching"),
    ]
    assert cases.row(first.case_id).version == 4
    (given_up, taken) = run(
        ledger.relaxed, text("SELECT * FROM case_events WHERE case_id = :id AND version > 2 ORDER BY id"), id=first.case_id
    )
    assert (given_up.code, given_up.attempt, given_up.worker, given_up.publish_no) == ("lease-expired", 1, None, None)
    assert (taken.code, taken.attempt, taken.worker, taken.publish_no) == ("retry", 2, "w2", 1)


def test_the_first_worker_is_refused_whatever_it_does_after_its_lease_was_taken(ledger: Ledger, cases: Cases) -> None:
    first = cases.claimed(worker="w1")
    cases.lapse(first.case_id)
    claim(ledger, first.case_id, worker="w2")
    before = cases.row(first.case_id)

    assert fetched(ledger, bare(first)) == []
    assert give_back(ledger, [(first.case_id, first.attempt)], SUSPECT, worker="w1") == []
    assert renew_leases(ledger, [(first.case_id, first.attempt)]) == set()
    with pytest.raises(StaleCompletion):
        fail_case(
            ledger, Ownership(first.case_id, first.attempt, CaseState.FETCHING, "w1"), {"code": "rejected"}, timeline={}, callback=None
        )
    assert cases.row(first.case_id) == before


def test_a_slow_worker_whose_lease_nobody_took_may_still_finish(ledger: Ledger, cases: Cases) -> None:
    slow = cases.claimed()
    cases.lapse(slow.case_id)

    assert [rung.case_id for rung in fetched(ledger, bare(slow))] == [slow.case_id]


def test_only_what_is_still_ours_is_renewed(ledger: Ledger, cases: Cases) -> None:
    ours, lost, done = cases.claimed(), cases.claimed(), cases.claimed()
    fetched(ledger, bare(done))
    cases.lapse(ours.case_id, lost.case_id)
    claim(ledger, lost.case_id, worker="w2")
    run(ledger.relaxed, text("UPDATE cases SET lease_until = lease_until - interval '3 seconds' WHERE id = :id"), id=lost.case_id)

    renewed = renew_leases(ledger, [(case.case_id, case.attempt) for case in (ours, lost, done)])

    assert renewed == {ours.case_id}
    assert lease_left_s(ledger, ours.case_id) > LEASE_S - 1
    assert lease_left_s(ledger, lost.case_id) < LEASE_S - 2
    assert cases.row(done.case_id).lease_until is None


def test_a_renewal_never_waits_for_a_row_that_is_being_moved(ledger: Ledger, cases: Cases) -> None:
    moving, resting = cases.claimed(), cases.claimed()
    cases.lapse(moving.case_id, resting.case_id)

    with ledger.durable.connect().execution_options(isolation_level="READ COMMITTED") as mover, mover.begin():
        mover.execute(text("SELECT 1 FROM cases WHERE id = :id FOR UPDATE"), {"id": moving.case_id})
        renewed = renew_leases(ledger, [(moving.case_id, moving.attempt), (resting.case_id, resting.attempt)])

    assert renewed == {resting.case_id}


def test_what_has_cost_all_its_tries_is_not_claimed_again(ledger: Ledger, cases: Cases) -> None:
    case_id = cases.accepted()
    for tries in range(1, MAX_TRIES + 1):
        (claimed,) = claim(ledger, case_id)
        assert claimed.tries == tries
        give_back(ledger, [(case_id, claimed.attempt)], SUSPECT, worker="w1")

    assert claim(ledger, case_id) == []
    assert cases.row(case_id).attempt == MAX_TRIES


def test_a_lapsed_last_try_is_not_claimed_again(ledger: Ledger, cases: Cases) -> None:
    case_id = cases.accepted()
    for _ in range(MAX_TRIES):
        assert len(claim(ledger, case_id)) == 1
        cases.lapse(case_id)

    assert claim(ledger, case_id) == []


def test_the_next_pool_has_all_its_tries(ledger: Ledger, cases: Cases) -> None:
    case = cases.claimed()
    give_back(ledger, [(case.case_id, case.attempt)], SUSPECT, worker="w1")
    (again,) = claim(ledger, case.case_id)

    fetched(ledger, bare(again))

    (inferred,) = claim(ledger, case.case_id, pool=Pool.INFERENCE)
    assert (again.tries, inferred.tries, inferred.attempt) == (2, 1, 3)


def test_a_hand_on_merges_the_work_and_rings_with_a_fresh_number(ledger: Ledger, cases: Cases) -> None:
    case = cases.claimed(lane=Lane.URGENT)
    times = {"fetch": {"entered_at": "2026-01-02T12:00:00Z"}}
    before = cases.row(case.case_id)

    (rung,) = fetched(ledger, HandOn(case.case_id, case.attempt, {"prepared": {"model": "m:1"}}, times))
    (inference,) = run(ledger.relaxed, text("UPDATE cases SET work = work || '{\"other\": 1}' RETURNING *"))

    assert (inference.work, inference.timeline) == ({"prepared": {"model": "m:1"}, "other": 1}, times)
    assert (inference.state, inference.claimed_by, inference.lease_until, inference.tries) == ("awaiting_inference", None, None, 0)
    assert rung == Rung(case.case_id, inference.publish_no, case.attempt, Lane.URGENT, case.deadline_at)
    assert rung.publish_no > before.publish_no
    assert cases.events(case.case_id)[-1] == (3, "fetching", "awaiting_inference")


def test_a_second_hand_on_keeps_what_the_first_one_noted(ledger: Ledger, cases: Cases) -> None:
    case = cases.claimed()
    fetched(ledger, HandOn(case.case_id, case.attempt, {"prepared": {"model": "m:1"}}, {"fetch": {"left_at": "a"}}))
    run(ledger.relaxed, text("UPDATE cases SET state = 'inferring', attempt = 2"))

    hand_on(
        ledger,
        [HandOn(case.case_id, 2, {"inferred": {"device": "cpu"}}, {"infer": {"left_at": "b"}})],
        left=CaseState.INFERRING,
        entered=CaseState.AWAITING_REPORT,
        worker="w1",
    )

    row = cases.row(case.case_id)
    assert row.work == {"prepared": {"model": "m:1"}, "inferred": {"device": "cpu"}}
    assert row.timeline == {"fetch": {"left_at": "a"}, "infer": {"left_at": "b"}}


def test_a_batch_is_claimed_and_handed_on_as_one_without_the_case_that_was_lost(ledger: Ledger, cases: Cases) -> None:
    case_ids = [cases.queued(Pool.INFERENCE) for _ in range(4)]
    batch = claim(ledger, *case_ids, pool=Pool.INFERENCE)
    cases.lapse(case_ids[2])
    claim(ledger, case_ids[2], worker="w2", pool=Pool.INFERENCE)

    done = [HandOn(case.case_id, case.attempt, {"inferred": {"row": row}}, {}) for row, case in enumerate(batch)]
    moved = hand_on(ledger, done, left=CaseState.INFERRING, entered=CaseState.AWAITING_REPORT, worker="w1")

    assert {case.case_id for case in batch} == set(case_ids)
    assert {rung.case_id for rung in moved} == set(case_ids) - {case_ids[2]}
    assert len({rung.publish_no for rung in moved}) == 3
    for row, case in enumerate(batch):
        if case.case_id != case_ids[2]:
            assert cases.row(case.case_id).work == {"inferred": {"row": row}}
    assert (cases.row(case_ids[2]).state, cases.row(case_ids[2]).work) == ("inferring", {})
    commits = run(
        ledger.relaxed,
        text("SELECT DISTINCT xmin::text FROM case_events WHERE entered_state = 'awaiting_report' AND left_state = 'inferring'"),
    )
    assert len(commits) == 1


@pytest.mark.parametrize("asked", [(0, 1, 2, 0), (2, 2, 0, 1), (1, 0, 1, 2, 0, 1)])
def test_a_case_that_is_named_twice_is_claimed_once_and_where_it_was_named_first(
    ledger: Ledger, cases: Cases, asked: tuple[int, ...]
) -> None:
    known = [cases.accepted() for _ in range(3)]

    claimed = claim(ledger, *(known[number] for number in asked))

    assert [case.case_id for case in claimed] == [known[number] for number in dict.fromkeys(asked)]
    assert {case.attempt for case in claimed} == {1}


def test_a_batch_claim_leaves_out_what_is_not_free(ledger: Ledger, cases: Cases) -> None:
    free, taken, elsewhere = cases.queued(Pool.INFERENCE), cases.claimed(Pool.INFERENCE, worker="w2"), cases.accepted()

    claimed = claim(ledger, free, taken.case_id, elsewhere, pool=Pool.INFERENCE)

    assert [case.case_id for case in claimed] == [free]


def test_nothing_is_handed_on_along_an_edge_that_does_not_exist(ledger: Ledger, cases: Cases) -> None:
    case = cases.claimed()

    with pytest.raises(ForbiddenTransition):
        hand_on(ledger, [bare(case)], left=CaseState.FETCHING, entered=CaseState.COMPLETED, worker="w1")
    with pytest.raises(ForbiddenTransition):
        give_back(ledger, [(case.case_id, 1)], Return(CaseState.FETCHING, CaseState.INFERRING, "x"), worker="w1")

    assert cases.row(case.case_id).state == "fetching"


def test_a_case_given_back_waits_for_its_delay(ledger: Ledger, cases: Cases) -> None:
    case = cases.claimed()

    (rung,) = give_back(
        ledger, [(case.case_id, case.attempt)], Return(CaseState.FETCHING, CaseState.ACCEPTED, "x", delay_s=1.5), worker="w1"
    )

    row = cases.row(case.case_id)
    assert row.due_at - row.published_at == timedelta(seconds=1.5)
    assert (row.state, row.tries, row.claimed_by, row.lease_until, row.publish_no) == ("accepted", 1, None, None, rung.publish_no)
    (event,) = run(ledger.relaxed, text("SELECT * FROM case_events WHERE code = 'x'"))
    assert (event.left_state, event.entered_state, event.worker, event.attempt) == ("fetching", "accepted", "w1", case.attempt)


def test_a_drain_charges_no_try_but_keeps_the_fence(ledger: Ledger, cases: Cases) -> None:
    case = cases.claimed()

    give_back(ledger, [(case.case_id, case.attempt)], Return(CaseState.FETCHING, CaseState.ACCEPTED, "drain", is_free=True), worker="w1")

    row = cases.row(case.case_id)
    assert (row.tries, row.attempt) == (0, 1)
    assert row.due_at == row.published_at


@pytest.mark.parametrize("is_free", [False, True])
def test_the_last_attempt_of_all_spends_the_tries_free_of_charge_or_not(ledger: Ledger, cases: Cases, is_free: bool) -> None:
    """given a case that goes round and round, then it ends, be it that nobody charges it"""
    case = cases.claimed()
    run(ledger.relaxed, text("UPDATE cases SET attempt = :most WHERE id = :id"), most=MOST_ATTEMPTS, id=case.case_id)

    why = Return(CaseState.FETCHING, CaseState.ACCEPTED, "suspects-company", is_free=is_free)
    give_back(ledger, [(case.case_id, MOST_ATTEMPTS)], why, worker="w1")

    assert cases.row(case.case_id).tries == MAX_TRIES
    assert claim(ledger, case.case_id) == []


def test_each_case_is_given_back_under_its_own_attempt(ledger: Ledger, cases: Cases) -> None:
    # The same worker holds `again` in its second attempt; a list that pairs its first with a neighbour's second is stale.
    again, neighbour = cases.claimed(worker="w1"), cases.claimed(worker="w1")
    cases.lapse(again.case_id, neighbour.case_id)
    assert len(claim(ledger, again.case_id, neighbour.case_id, worker="w1")) == 2

    returned = give_back(ledger, [(again.case_id, 1), (neighbour.case_id, 2)], SUSPECT, worker="w1")

    assert [rung.case_id for rung in returned] == [neighbour.case_id]
    assert cases.row(again.case_id).state == "fetching"


def test_another_worker_cannot_give_a_case_back(ledger: Ledger, cases: Cases) -> None:
    case = cases.claimed(worker="w1")

    assert give_back(ledger, [(case.case_id, case.attempt)], SUSPECT, worker="w2") == []


def test_work_on_a_cancelled_case_is_refused(ledger: Ledger, cases: Cases) -> None:
    case = cases.claimed()
    cancel_case(ledger, Ownership(case.case_id, case.attempt, CaseState.FETCHING), callback=None)

    assert fetched(ledger, bare(case)) == []
    assert give_back(ledger, [(case.case_id, case.attempt)], SUSPECT, worker="w1") == []
    assert renew_leases(ledger, [(case.case_id, case.attempt)]) == set()
    assert claim(ledger, case.case_id) == []
    assert cases.row(case.case_id).state == "cancelled"


def test_a_case_is_read_as_a_claim_would_give_it_without_claiming(ledger: Ledger, cases: Cases) -> None:
    case = cases.claimed()

    assert read_unclaimed(ledger, case.case_id) == case
    assert read_unclaimed(ledger, uuid4()) is None
    assert cases.row(case.case_id).attempt == 1


def test_a_pools_cases_are_counted_queued_and_claimed_up_to_a_limit(ledger: Ledger, cases: Cases) -> None:
    for make in (cases.accepted, cases.accepted, cases.claimed):
        make()
    delayed, ended = cases.claimed(), cases.claimed()
    give_back(ledger, [(delayed.case_id, delayed.attempt)], Return(CaseState.FETCHING, CaseState.ACCEPTED, "x", delay_s=9.0), worker="w1")
    cancel_case(ledger, Ownership(ended.case_id, ended.attempt, CaseState.FETCHING), callback=None)
    cases.queued(Pool.REPORTING)

    assert [count_cases_of(ledger, Pool.INTAKE, limit=limit) for limit in (10, 2)] == [3, 2]
    assert [count_cases_of(ledger, pool, limit=10) for pool in (Pool.INFERENCE, Pool.REPORTING)] == [0, 1]
