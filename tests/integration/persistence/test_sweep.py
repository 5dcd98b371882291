"""Which doorbells are probably gone, which claims nobody holds, and what is not touched."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from pipeline.cases.states import CaseState
from pipeline.deadline import utc_now
from pipeline.flow import Lane, Pool
from pipeline.persistence.ledger import sweep
from pipeline.persistence.ledger.admission import find_by_key
from pipeline.persistence.ledger.claims import MAX_TRIES, HandOn, Return, Rung, claim_cases, give_back, hand_on
from pipeline.persistence.ledger.engine import Ledger, run
from workers.app import PRIORITY

pytestmark = pytest.mark.services

Cases = Any
"""The factory of `conftest.py`."""
POOLS = [Pool.INTAKE, Pool.INFERENCE, Pool.REPORTING]
OLD_S = 60.0
NO_END = 2**62


def ids(rungs: list[Rung]) -> list[UUID]:
    return [rung.case_id for rung in rungs]


def in_all_lanes(seen_no: int) -> dict[Lane, int]:
    return dict.fromkeys(Lane, seen_no)


def number(ledger: Ledger, case_id: UUID, publish_no: int) -> None:
    run(ledger.relaxed, text("UPDATE cases SET publish_no = :no WHERE id = :id"), id=case_id, no=publish_no)


def spend(ledger: Ledger, case_id: UUID, *, tries: int = MAX_TRIES) -> None:
    run(ledger.relaxed, text("UPDATE cases SET tries = :tries WHERE id = :id"), id=case_id, tries=tries)


@pytest.mark.parametrize(("ahead", "age_s", "is_rung"), [(51, 4.0, True), (50, 4.0, False), (51, 2.0, False), (1_000_000, 0.0, False)])
def test_a_doorbell_is_overtaken_by_numbers_and_seconds_together(
    ledger: Ledger, cases: Cases, ahead: int, age_s: float, is_rung: bool
) -> None:
    case_id = cases.accepted()
    cases.age(case_id, seconds=age_s)
    published = cases.row(case_id).publish_no

    rung = sweep.ring_overtaken(ledger, Pool.INTAKE, seen_nos=in_all_lanes(published + ahead), limit=10)

    assert ids(rung) == ([case_id] if is_rung else [])


@pytest.mark.parametrize("lane", Lane)
@pytest.mark.parametrize("answered", Lane)
def test_a_doorbell_is_overtaken_by_its_own_lane_and_those_served_after_it(
    ledger: Ledger, cases: Cases, lane: Lane, answered: Lane
) -> None:
    case_id = cases.accepted(lane=lane)
    cases.age(case_id, seconds=OLD_S)

    rung = sweep.ring_overtaken(ledger, Pool.INTAKE, seen_nos={answered: cases.row(case_id).publish_no + 1000}, limit=10)

    served_in_order = [Lane.URGENT, Lane.ROUTINE, Lane.COMPENSATION]
    assert ids(rung) == ([case_id] if served_in_order.index(answered) >= served_in_order.index(lane) else [])


def test_the_order_in_which_lanes_are_judged_is_that_in_which_a_queue_serves_them() -> None:
    assert sorted(Lane, key=lambda lane: PRIORITY[lane]) == list(sweep.LANES)


def test_age_alone_is_no_sign_of_loss(ledger: Ledger, cases: Cases) -> None:
    case_id = cases.accepted()
    cases.age(case_id, seconds=3600)

    assert sweep.ring_overtaken(ledger, Pool.INTAKE, seen_nos=in_all_lanes(0), limit=10) == []


def test_a_rung_case_has_a_fresh_number_and_is_not_overtaken_by_the_same_sign(ledger: Ledger, cases: Cases) -> None:
    case_id = cases.accepted(lane=Lane.URGENT)
    cases.age(case_id, seconds=OLD_S)
    before = cases.row(case_id)

    (rung,) = sweep.ring_overtaken(ledger, Pool.INTAKE, seen_nos=in_all_lanes(before.publish_no + 60), limit=10)

    after = cases.row(case_id)
    assert rung == Rung(case_id, after.publish_no, 0, Lane.URGENT, before.deadline_at)
    assert after.publish_no > before.publish_no
    assert (after.version, after.state, after.attempt) == (before.version, before.state, before.attempt)
    assert sweep.ring_overtaken(ledger, Pool.INTAKE, seen_nos=in_all_lanes(before.publish_no + 60), limit=10) == []


def test_the_longest_overtaken_are_rung_first(ledger: Ledger, cases: Cases) -> None:
    case_ids = [cases.accepted() for _ in range(4)]
    for case_id, publish_no in zip(case_ids, (30, 10, 40, 20), strict=True):
        number(ledger, case_id, publish_no)
    cases.age(*case_ids, seconds=OLD_S)

    rung = sweep.ring_overtaken(ledger, Pool.INTAKE, seen_nos=in_all_lanes(1000), limit=2)

    assert set(ids(rung)) == {case_ids[1], case_ids[3]}


def test_what_is_claimed_delayed_spent_ended_or_anothers_is_not_rung(ledger: Ledger, cases: Cases) -> None:
    queued, delayed, spent, ended = (cases.accepted() for _ in range(4))
    others = [cases.claimed().case_id, cases.queued(Pool.REPORTING)]
    cases.age(queued, delayed, spent, ended, *others, seconds=OLD_S)
    run(ledger.relaxed, text("UPDATE cases SET due_at = clock_timestamp() + interval '9 s' WHERE id = :id"), id=delayed)
    run(ledger.relaxed, text("UPDATE cases SET ended_at = now() WHERE id = :id"), id=ended)
    spend(ledger, spent)

    assert ids(sweep.ring_all(ledger, Pool.INTAKE, up_to_no=NO_END, limit=10)) == [queued]
    cases.age(queued, seconds=OLD_S)
    assert ids(sweep.ring_overtaken(ledger, Pool.INTAKE, seen_nos=in_all_lanes(10**9), limit=10)) == [queued]


def test_after_a_lost_redis_every_queued_case_of_the_pool_is_rung_in_slices(ledger: Ledger, cases: Cases) -> None:
    case_ids = [cases.accepted() for _ in range(5)]
    cases.age(*case_ids, seconds=2)

    first, second, third = (sweep.ring_all(ledger, Pool.INTAKE, up_to_no=NO_END, limit=3) for _ in range(3))

    assert sorted(ids(first) + ids(second)) == sorted(case_ids)
    assert third == []


def test_what_was_published_after_the_loss_is_not_rung(ledger: Ledger, cases: Cases) -> None:
    lost = cases.accepted()
    noticed_no = sweep.newest_publish_no(ledger)
    later = cases.accepted()
    cases.age(lost, later, seconds=OLD_S)

    rounds = [ids(sweep.ring_all(ledger, Pool.INTAKE, up_to_no=noticed_no, limit=10)) for _ in range(2)]

    assert rounds == [[lost], []]
    assert cases.row(lost).publish_no == noticed_no + 2


def test_a_doorbell_that_may_still_be_on_its_way_is_left_alone(ledger: Ledger, cases: Cases) -> None:
    cases.accepted()

    assert sweep.ring_all(ledger, Pool.INTAKE, up_to_no=NO_END, limit=10) == []


def test_two_sweepers_ring_each_case_once(ledger: Ledger, cases: Cases) -> None:
    case_ids = [cases.accepted() for _ in range(40)]
    cases.age(*case_ids, seconds=OLD_S)

    with ThreadPoolExecutor(4) as pool:
        rounds = pool.map(lambda _: ids(sweep.ring_all(ledger, Pool.INTAKE, up_to_no=NO_END, limit=20)), range(8))
        rung = [case_id for found in rounds for case_id in found]

    assert sorted(rung) == sorted(case_ids)


@pytest.mark.parametrize("pool", POOLS)
def test_what_was_just_queued_is_not_rung_a_second_time(ledger: Ledger, cases: Cases, pool: Pool) -> None:
    fresh = [cases.queued(pool) for _ in range(50)]
    freed = [cases.claimed(pool).case_id for _ in range(10)]
    cases.lapse(*freed)
    sweep.free_expired(ledger, pool, limit=100)

    assert sweep.ring_due(ledger, pool, limit=100) == []
    assert len(fresh) + len(freed) == cases.count("cases")


def test_a_delayed_case_is_rung_once_when_its_delay_is_over(ledger: Ledger, cases: Cases) -> None:
    case = cases.claimed()
    give_back(ledger, [(case.case_id, case.attempt)], Return(CaseState.FETCHING, CaseState.ACCEPTED, "x", delay_s=5.0), worker="w1")

    before = sweep.ring_due(ledger, Pool.INTAKE, limit=10)
    cases.age(case.case_id, seconds=5)
    due, again = (ids(sweep.ring_due(ledger, Pool.INTAKE, limit=10)) for _ in range(2))

    assert (before, due, again) == ([], [case.case_id], [])


def test_a_case_given_back_without_a_delay_is_rung_by_its_giver_alone(ledger: Ledger, cases: Cases) -> None:
    for _ in range(20):
        case = cases.claimed()
        give_back(ledger, [(case.case_id, case.attempt)], Return(CaseState.FETCHING, CaseState.ACCEPTED, "x"), worker="w1")

    assert sweep.ring_due(ledger, Pool.INTAKE, limit=100) == []


@pytest.mark.parametrize("pool", POOLS)
def test_lapsed_claims_go_back_to_their_queue_and_living_ones_do_not(ledger: Ledger, cases: Cases, pool: Pool) -> None:
    lapsed, living = cases.claimed(pool), cases.claimed(pool)
    cases.lapse(lapsed.case_id)
    before = cases.row(lapsed.case_id)

    (rung,) = sweep.free_expired(ledger, pool, limit=10)

    after = cases.row(lapsed.case_id)
    assert (rung.case_id, rung.publish_no, rung.attempt) == (lapsed.case_id, after.publish_no, lapsed.attempt)
    assert (after.claimed_by, after.lease_until, after.tries, after.version) == (None, None, 1, before.version + 1)
    assert after.publish_no > before.publish_no
    queued = {Pool.INTAKE: "accepted", Pool.INFERENCE: "awaiting_inference", Pool.REPORTING: "awaiting_report"}[pool]
    assert cases.events(lapsed.case_id)[-1] == (after.version, before.state, queued)
    assert cases.row(living.case_id).claimed_by == "w1"
    assert sweep.free_expired(ledger, pool, limit=10) == []


def test_a_freed_case_refuses_its_first_worker_and_goes_to_the_next(ledger: Ledger, cases: Cases) -> None:
    first = cases.claimed()
    cases.lapse(first.case_id)
    sweep.free_expired(ledger, Pool.INTAKE, limit=10)

    done = [HandOn(first.case_id, first.attempt, {}, {})]
    assert hand_on(ledger, done, left=CaseState.FETCHING, entered=CaseState.AWAITING_INFERENCE, worker="w1") == []
    (second,) = claim_cases(ledger, [first.case_id], pool=Pool.INTAKE, worker="w2", seen_no=1)
    assert second.attempt == 2


def test_the_spent_are_found_and_those_at_work_on_their_last_try_are_not(ledger: Ledger, cases: Cases) -> None:
    queued, lapsed, working, fresh = cases.accepted(), cases.claimed(), cases.claimed(), cases.claimed()
    for case_id in (queued, lapsed.case_id, working.case_id):
        spend(ledger, case_id)
    cases.lapse(lapsed.case_id, fresh.case_id)

    spent = sweep.find_spent(ledger, Pool.INTAKE, limit=10)

    assert {(case.case_id, case.attempt, case.state) for case in spent} == {
        (queued, 0, "accepted"),
        (lapsed.case_id, 1, "fetching"),
    }
    assert sweep.find_spent(ledger, Pool.INFERENCE, limit=10) == []
    assert ids(sweep.free_expired(ledger, Pool.INTAKE, limit=10)) == [fresh.case_id]


def test_the_newest_seen_are_the_highest_numbers_that_each_pool_answered_in_each_lane(ledger: Ledger, cases: Cases) -> None:
    start = sweep.last_event_id(ledger)
    for pool, lane, seen_no in (
        (Pool.INTAKE, Lane.ROUTINE, 17),
        (Pool.INTAKE, Lane.ROUTINE, 12),
        (Pool.INTAKE, Lane.URGENT, 21),
        (Pool.REPORTING, Lane.ROUTINE, 99),
    ):
        claim_cases(ledger, [cases.queued(pool, lane=lane)], pool=pool, worker="w", seen_no=seen_no)
    end = sweep.last_event_id(ledger)

    assert end > start
    # On its way to reporting the last was claimed by intake and inference too, with number 0.
    seen_nos = {
        Pool.INTAKE: {Lane.ROUTINE: 17, Lane.URGENT: 21},
        Pool.INFERENCE: {Lane.ROUTINE: 0},
        Pool.REPORTING: {Lane.ROUTINE: 99},
    }
    assert sweep.newest_seen(ledger, after_id=start) == sweep.Seen(end, seen_nos, claim_count=6)
    assert sweep.newest_seen(ledger, after_id=end) == sweep.Seen(end, {}, claim_count=0)


def test_a_new_ledger_has_no_last_event(ledger: Ledger) -> None:
    last = sweep.last_event_id(ledger)

    assert last == 0
    assert sweep.newest_seen(ledger, after_id=last) == sweep.Seen(0, {}, claim_count=0)


def test_who_awaits_inference_is_told_with_what_the_line_needs(ledger: Ledger, cases: Cases) -> None:
    case = cases.claimed(lane=Lane.URGENT)
    prepared = {"prepared": {"model": "breast-us:1.0", "model_input": {"shape": [7, 1, 256, 256]}}}
    done = [HandOn(case.case_id, case.attempt, prepared, {})]
    hand_on(ledger, done, left=CaseState.FETCHING, entered=CaseState.AWAITING_INFERENCE, worker="w1")

    fresh = sweep.awaiting_inference(ledger, after_no=0, limit=10)
    cases.age(case.case_id, seconds=2)
    (waiting,) = sweep.awaiting_inference(ledger, after_no=0, limit=10)

    assert fresh == []
    assert waiting == sweep.AwaitsInference(
        Rung(case.case_id, cases.row(case.case_id).publish_no, 1, Lane.URGENT, case.deadline_at), "breast-us:1.0", 7, case.accepted_at
    )


def test_who_is_delayed_spent_or_claimed_does_not_await_inference(ledger: Ledger, cases: Cases) -> None:
    delayed, spent, claimed = cases.queued(Pool.INFERENCE), cases.queued(Pool.INFERENCE), cases.claimed(Pool.INFERENCE)
    cases.age(delayed, spent, claimed.case_id, seconds=OLD_S)
    run(ledger.relaxed, text("UPDATE cases SET due_at = clock_timestamp() + interval '9 s' WHERE id = :id"), id=delayed)
    spend(ledger, spent)

    assert sweep.awaiting_inference(ledger, after_no=0, limit=10) == []


def test_open_cases_are_counted_by_state_with_the_age_of_the_oldest(ledger: Ledger, cases: Cases) -> None:
    cases.accepted(accepted_at=utc_now() - timedelta(seconds=50))
    cases.accepted()
    cases.claimed()
    cases.queued(Pool.INFERENCE)
    ended = cases.accepted()
    run(ledger.relaxed, text("UPDATE cases SET state = 'failed', ended_at = now() WHERE id = :id"), id=ended)

    counts = {state: (count, oldest_s) for state, count, oldest_s in sweep.open_counts(ledger)}

    assert {state: count for state, (count, _) in counts.items()} == {"accepted": 2, "fetching": 1, "awaiting_inference": 1}
    assert 50 <= counts["accepted"][1] < 55
    assert 0 <= counts["fetching"][1] < 5


def test_a_key_is_forgotten_when_its_day_is_over_and_its_case_is_not(ledger: Ledger, cases: Cases) -> None:
    old = cases.new(idempotency_key="old", accepted_at=utc_now() - timedelta(hours=25))
    young = cases.new(idempotency_key="young", accepted_at=utc_now() - timedelta(hours=23))
    for new in (old, young):
        cases.accepted(**{name: getattr(new, name) for name in new.__slots__})

    sweep.purge_keys(ledger, older_than_hours=24)

    def is_known(key: str) -> bool:
        return find_by_key(ledger, tenant_id=old.tenant_id, key=key, fingerprint=old.fingerprint) is not None

    assert (is_known("old"), is_known("young")) == (False, True)
    assert cases.count("cases") == 2
