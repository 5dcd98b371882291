"""The retry budgets in the ledger, and whole rounds of the sweeper that keep to them."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest
from celery import Celery
from prometheus_client import REGISTRY
from sqlalchemy import text

from pipeline.cases.retries import MOST_TOKENS
from pipeline.cases.states import POOL_STATES, CaseState
from pipeline.flow import Lane, Pool
from pipeline.persistence.ledger import sweep
from pipeline.persistence.ledger.claims import MAX_TRIES, Claimed, HandOn, Return, claim_cases, give_back, hand_on
from pipeline.persistence.ledger.compensation import release
from pipeline.persistence.ledger.engine import Ledger, run
from pipeline.persistence.ledger.guard import give_answer, owed_cases
from pipeline.persistence.ledger.outcomes import Answer
from pipeline.persistence.ledger.retries import change_budgets, unpaid_retries
from pipeline.persistence.waiting_line import Waiting
from workers.isolation import apart, send_back
from workers.sweeper import BUDGET_SPENT, TRIES_SPENT, Sweeper
from workers.wiring import Services

pytestmark = pytest.mark.services

Cases = Any
"""The factory of `conftest.py`."""
POOLS = list(POOL_STATES)
PRELIMINARY = Answer(1, "preliminary", "not_yet_read", "{}")


def tokens(ledger: Ledger, pool: Pool = Pool.INTAKE) -> float:
    return change_budgets(ledger, {pool: 0.0})[pool]


def leave(ledger: Ledger, count: float, pool: Pool = Pool.INTAKE) -> None:
    """Let a bucket hold so much."""
    change_budgets(ledger, {pool: -MOST_TOKENS})
    change_budgets(ledger, {pool: count})


def fail_softly(ledger: Ledger, cases: Cases, case: Claimed, pool: Pool = Pool.INTAKE, **how: bool) -> None:
    """Give a case back for a reason that may pass, and let its delay be over."""
    states = POOL_STATES[pool]
    why = Return(states.claimed, states.queued, "x", delay_s=1.0, **how)
    assert len(give_back(ledger, [(case.case_id, case.attempt)], why, worker="w1")) == 1
    cases.age(case.case_id, seconds=2.0)


def claim(ledger: Ledger, case_id: UUID, pool: Pool = Pool.INTAKE) -> list[Claimed]:
    return claim_cases(ledger, [case_id], pool=pool, worker="w1", seen_no=1)


@pytest.fixture
def sweeper(services: Services, app: Celery) -> Sweeper:
    return Sweeper(services, app)


def test_a_bucket_begins_full_and_is_never_fuller_and_never_less_than_empty(ledger: Ledger) -> None:
    assert change_budgets(ledger, dict.fromkeys(POOLS, 0.0)) == dict.fromkeys(POOLS, MOST_TOKENS)
    assert change_budgets(ledger, {Pool.INTAKE: 5.0, Pool.REPORTING: -3.5}) == {Pool.INTAKE: MOST_TOKENS, Pool.REPORTING: 16.5}
    assert change_budgets(ledger, {Pool.INTAKE: -100.0}) == {Pool.INTAKE: 0.0}


def test_a_retry_costs_a_token_and_what_is_beyond_them_waits(ledger: Ledger, cases: Cases) -> None:
    leave(ledger, 2.7)
    due = [cases.claimed() for _ in range(4)]
    for case in due:
        fail_softly(ledger, cases, case)

    rung = {rung.case_id for rung in sweep.ring_due(ledger, Pool.INTAKE, limit=10)}

    assert rung == {case.case_id for case in due[:2]}
    assert tokens(ledger) == pytest.approx(0.7)
    assert sweep.ring_due(ledger, Pool.INTAKE, limit=10) == []
    assert set(unpaid_retries(ledger, Pool.INTAKE, limit=10)) == {case.case_id for case in due[2:]}


def test_of_several_sweepers_at_once_none_spends_a_token_twice(ledger: Ledger, cases: Cases) -> None:
    leave(ledger, 7.0)
    for _ in range(30):
        fail_softly(ledger, cases, cases.claimed())

    with ThreadPoolExecutor(4) as threads:
        rounds = list(threads.map(lambda _: sweep.ring_due(ledger, Pool.INTAKE, limit=3), range(12)))

    rung = [rung.case_id for found in rounds for rung in found]
    assert len(rung) == len(set(rung)) == 7
    assert tokens(ledger) == 0


def test_one_pools_retries_cost_another_nothing(ledger: Ledger, cases: Cases) -> None:
    leave(ledger, 0.0, Pool.INTAKE)
    fail_softly(ledger, cases, cases.claimed(Pool.REPORTING), Pool.REPORTING)

    assert len(sweep.ring_due(ledger, Pool.REPORTING, limit=10)) == 1
    assert (tokens(ledger, Pool.INTAKE), tokens(ledger, Pool.REPORTING)) == (0.0, MOST_TOKENS - 1)


def test_what_was_given_back_free_of_charge_needs_no_token(ledger: Ledger, cases: Cases) -> None:
    leave(ledger, 1.0)
    case = cases.claimed()
    fail_softly(ledger, cases, case, is_free=True)

    assert unpaid_retries(ledger, Pool.INTAKE, limit=10) == []
    assert [rung.case_id for rung in sweep.ring_due(ledger, Pool.INTAKE, limit=10)] == [case.case_id]
    assert tokens(ledger) == 1


def test_nobody_tries_again_what_the_sweeper_has_not_rung(ledger: Ledger, cases: Cases) -> None:
    case = cases.claimed()
    fail_softly(ledger, cases, case)

    # An old doorbell of it, three times delivered; a Redis that was emptied; a message that was passed.
    assert claim(ledger, case.case_id) == []
    assert sweep.ring_all(ledger, Pool.INTAKE, up_to_no=2**62, limit=10) == []
    assert sweep.ring_overtaken(ledger, Pool.INTAKE, seen_nos=dict.fromkeys(Lane, 10**9), limit=10) == []

    assert len(sweep.ring_due(ledger, Pool.INTAKE, limit=10)) == 1
    assert [again.tries for again in claim(ledger, case.case_id)] == [2]


def test_what_was_seen_tells_first_attempts_from_retries_and_counts_the_leases_that_ran_out(ledger: Ledger, cases: Cases) -> None:
    cases.claimed()
    again, lapsed = cases.claimed(), cases.claimed()
    fail_softly(ledger, cases, again)
    sweep.ring_due(ledger, Pool.INTAKE, limit=10)
    claim(ledger, again.case_id)
    cases.lapse(lapsed.case_id)
    sweep.free_expired(ledger, Pool.INTAKE, limit=10)

    seen = sweep.newest_seen(ledger, after_id=0)

    assert (seen.first_attempts, seen.lapses, seen.claim_count) == ({Pool.INTAKE: 3}, {Pool.INTAKE: 1}, 4)


@pytest.mark.parametrize(("how", "tries", "strikes"), [({}, 1, 0), ({"is_strike": True}, 1, 1), ({"is_free": True}, 0, 0)])
def test_what_a_return_is_charged(ledger: Ledger, cases: Cases, how: dict[str, bool], tries: int, strikes: int) -> None:
    case = cases.claimed()
    fail_softly(ledger, cases, case, Pool.INTAKE, **how)

    assert (cases.row(case.case_id).tries, cases.row(case.case_id).strikes) == (tries, strikes)


def test_a_lease_that_runs_out_is_a_strike_and_the_next_pool_has_none(ledger: Ledger, cases: Cases) -> None:
    case = cases.claimed()
    cases.lapse(case.case_id)
    sweep.free_expired(ledger, Pool.INTAKE, limit=10)
    (again,) = claim(ledger, case.case_id)
    hand_on(
        ledger, [HandOn(again.case_id, again.attempt, {}, {})], left=CaseState.FETCHING, entered=CaseState.AWAITING_INFERENCE, worker="w1"
    )

    assert (again.tries, again.strikes) == (2, 1)
    assert (cases.row(case.case_id).tries, cases.row(case.case_id).strikes) == (0, 0)


# Whole rounds of the sweeper


def suppressed(pool: Pool) -> float:
    labels = {"pool": pool.value, "cause": BUDGET_SPENT}
    return REGISTRY.get_sample_value("secondread_retries_suppressed_total", labels) or 0.0


def test_with_an_empty_bucket_a_failure_goes_straight_to_the_compensation_queue(
    sweeper: Sweeper, services: Services, ledger: Ledger, cases: Cases
) -> None:
    leave(ledger, 0.0)
    case, before = cases.claimed(), suppressed(Pool.INTAKE)
    fail_softly(ledger, cases, case)

    sweeper.round()

    row = cases.row(case.case_id)
    assert (row.state, row.lane, row.deferred_because, row.worklist_at) == ("deferred", "compensation", BUDGET_SPENT, None)
    assert suppressed(Pool.INTAKE) == before + 1
    assert services.redis.llen("intake\x06\x166") == 0


def test_what_was_put_off_early_is_answered_by_its_deadline_where_it_stands(sweeper: Sweeper, ledger: Ledger, cases: Cases) -> None:
    leave(ledger, 0.0)
    case = cases.claimed()
    fail_softly(ledger, cases, case)
    sweeper.round()
    assert owed_cases(ledger, wait_s=10.0, reserve_s=2.0, limit=10) == []
    run(ledger.relaxed, text("UPDATE cases SET deadline_at = deadline_at - interval '29 s', accepted_at = accepted_at - interval '29 s'"))

    (owed,) = owed_cases(ledger, wait_s=10.0, reserve_s=2.0, limit=10)

    assert (owed.case_id, owed.is_put_off) == (case.case_id, False)
    assert give_answer(ledger, owed, PRELIMINARY, reason="deadline", callback=None)
    row = cases.row(case.case_id)
    assert (row.state, row.is_preliminary, row.result_version) == ("deferred", True, 1)
    assert owed_cases(ledger, wait_s=10.0, reserve_s=2.0, limit=10) == []


def test_a_new_leader_finds_the_bucket_as_the_last_one_left_it(
    sweeper: Sweeper, services: Services, app: Celery, ledger: Ledger, cases: Cases
) -> None:
    leave(ledger, 1.0)
    for _ in range(2):
        fail_softly(ledger, cases, cases.claimed())
    sweeper.round()
    fail_softly(ledger, cases, cases.claimed())

    Sweeper(services, app).round()

    states = [row.state for row in run(ledger.relaxed, text("SELECT state FROM cases ORDER BY state"))]
    assert states == ["accepted", "deferred", "deferred"]


def test_a_worker_that_died_has_its_cases_done_again_whatever_the_bucket_holds(sweeper: Sweeper, ledger: Ledger, cases: Cases) -> None:
    leave(ledger, 3.0)
    claims = [cases.claimed() for _ in range(10)]
    cases.lapse(*(case.case_id for case in claims))

    sweeper.round()
    sweeper.round()

    assert {cases.row(case.case_id).state for case in claims} == {"accepted"}
    # Ten first attempts were not seen by this sweeper, which came later; ten lapses were.
    assert tokens(ledger) == pytest.approx(1.0, abs=1.0)


def twice(cases: Cases, ledger: Ledger, pool: Pool, fault: str) -> UUID:
    """A case that has had its tries in a pool, each with the same end."""
    case = cases.claimed(pool)
    for number in range(MAX_TRIES):
        if number:
            change_budgets(ledger, {pool: MOST_TOKENS})
            sweep.ring_due(ledger, pool, limit=10)
            (case,) = claim(ledger, case.case_id, pool)
        if fault == "lapse":
            cases.lapse(case.case_id)
            sweep.free_expired(ledger, pool, limit=10)
        else:
            fail_softly(ledger, cases, case, pool, is_strike=fault == "crash")
    case_id: UUID = case.case_id
    return case_id


@pytest.mark.parametrize(
    ("pool", "fault", "state", "code"),
    [
        (Pool.INTAKE, "soft", "deferred", TRIES_SPENT),
        (Pool.INFERENCE, "soft", "deferred", TRIES_SPENT),
        (Pool.INTAKE, "crash", "failed", "quarantined"),
        (Pool.REPORTING, "crash", "failed", "quarantined"),
        (Pool.INFERENCE, "lapse", "failed", "quarantined"),
        # Four cases at once and more shared the process: nobody knows which of them ended it.
        (Pool.INTAKE, "lapse", "deferred", TRIES_SPENT),
        (Pool.REPORTING, "lapse", "deferred", TRIES_SPENT),
    ],
)
def test_after_two_tries_a_case_is_put_off_and_after_two_strikes_quarantined(
    sweeper: Sweeper, ledger: Ledger, cases: Cases, pool: Pool, fault: str, state: str, code: str
) -> None:
    case_id = twice(cases, ledger, pool, fault)

    sweeper.round()

    row = cases.row(case_id)
    assert (row.state, row.failure["code"] if row.failure else row.deferred_because) == (state, code)


def compensated(cases: Cases, ledger: Ledger, fault: str) -> UUID:
    """A case that has had its tries again in the compensation lane."""
    case_id: UUID = cases.accepted()
    run(ledger.relaxed, text("UPDATE cases SET state = 'deferred', lane = 'compensation' WHERE id = :id"), id=case_id)
    assert [rung.case_id for rung in release(ledger, limit=1)] == [case_id]
    for _ in range(MAX_TRIES):
        (case,) = claim(ledger, case_id)
        if fault == "lapse":
            cases.lapse(case_id)
            sweep.free_expired(ledger, Pool.INTAKE, limit=10)
        else:
            fail_softly(ledger, cases, case)
            sweep.ring_due(ledger, Pool.INTAKE, limit=10)
    return case_id


def worklisted() -> float:
    return REGISTRY.get_sample_value("secondread_compensation_exhausted_total") or 0.0


@pytest.mark.parametrize(("fault", "reason", "is_humans"), [("soft", TRIES_SPENT, False), ("lapse", "quarantined", True)])
def test_in_the_compensation_lane_a_case_is_tried_later_and_what_crashes_there_is_a_humans(
    sweeper: Sweeper, ledger: Ledger, cases: Cases, fault: str, reason: str, is_humans: bool
) -> None:
    case_id, before = compensated(cases, ledger, fault), worklisted()

    sweeper.round()

    row = cases.row(case_id)
    assert (row.state, row.deferred_because, row.worklist_at is not None) == ("deferred", reason, is_humans)
    assert (row.compensation_attempts, row.tries, row.failure) == (1, 0, None)
    assert worklisted() - before == is_humans


def test_a_compensation_case_that_moved_while_it_was_looked_at_is_left_alone(
    sweeper: Sweeper, ledger: Ledger, cases: Cases, monkeypatch: pytest.MonkeyPatch
) -> None:
    case_id = compensated(cases, ledger, "lapse")
    run(ledger.relaxed, text("UPDATE cases SET tries = 1 WHERE id = :id"), id=case_id)
    found = sweep.Spent(case_id, 1, "fetching")
    monkeypatch.setattr(sweep, "find_spent", lambda *_, **__: [found])
    monkeypatch.setattr("workers.sweeper.read_unclaimed", _stale(ledger, cases, case_id))

    sweeper.round()

    assert (cases.row(case_id).state, cases.row(case_id).worklist_at) == ("fetching", None)


def _stale(ledger: Ledger, cases: Cases, case_id: UUID) -> Callable[..., Claimed]:
    """What was read before another worker claimed the case."""
    sweep.free_expired(ledger, Pool.INTAKE, limit=10)
    (held,) = claim(ledger, case_id)
    cases.lapse(case_id)
    run(ledger.relaxed, text("UPDATE cases SET tries = 1 WHERE id = :id"), id=case_id)
    claim(ledger, case_id)
    return lambda *_: held


def test_when_a_third_of_the_calls_fail_for_a_while_retries_add_a_tenth(
    sweeper: Sweeper, ledger: Ledger, cases: Cases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E8 on the ledger: 30 rounds of 20 new cases each, while three calls of ten fail."""
    monkeypatch.setattr("workers.sweeper.PUT_OFF_A_ROUND", 1_000)
    chance, waiting, attempts, brought = random.Random(8), set[UUID](), 0, 0
    for _ in range(30):
        new = [cases.accepted() for _ in range(20)]
        brought, waiting = brought + len(new), waiting | set(new)
        claimed = claim_cases(ledger, list(waiting), pool=Pool.INTAKE, worker="w1", seen_no=1)
        attempts += len(claimed)
        failed = [case for case in claimed if chance.random() < 0.3]
        for case in failed:
            fail_softly(ledger, cases, case)
        done = [HandOn(case.case_id, case.attempt, {}, {}) for case in claimed if case not in failed]
        hand_on(ledger, done, left=CaseState.FETCHING, entered=CaseState.AWAITING_REPORT, worker="w1")
        waiting -= {each.case_id for each in done}
        sweeper.round()

    put_off = run(ledger.relaxed, text("SELECT deferred_because AS why, count(*) AS n FROM cases WHERE state = 'deferred' GROUP BY 1"))
    assert brought + MOST_TOKENS / 2 < attempts <= 1.10 * brought + MOST_TOKENS
    # Nobody is lost: what was not tried again is put off, and the queue does not grow.
    assert {row.why for row in put_off} == {BUDGET_SPENT, TRIES_SPENT}
    assert cases.count("cases WHERE state = 'accepted'") < 20


def test_a_suspects_company_goes_back_to_its_places_in_line_and_is_charged_nothing(
    services: Services, ledger: Ledger, cases: Cases
) -> None:
    line = services.line(next(iter(services.cards)))
    suspect, *company = [cases.queued(Pool.INFERENCE) for _ in range(3)]
    run(ledger.relaxed, text("UPDATE cases SET strikes = 1 WHERE id = :id"), id=suspect)
    places = [Waiting(case_id, 10.0 + number, 30.0, 1.0, 1, "routine", number) for number, case_id in enumerate([suspect, *company])]
    line.join(places)
    line.look("gpu@a", limit=10, now=0.0)
    taken = line.take("gpu@a", [suspect, *company], busy_until=None) or []
    claimed = claim_cases(ledger, taken, pool=Pool.INFERENCE, worker=services.worker, seen_no=1)

    together, others = apart(claimed)
    send_back(services, line, places, others)

    assert [case.case_id for case in together] == [suspect]
    assert [place.case_id for place in line.view(limit=10, now=0.0).waiting] == company
    assert {(cases.row(each).state, cases.row(each).tries, cases.row(each).strikes) for each in company} == {("awaiting_inference", 0, 0)}
    assert cases.row(suspect).state == "inferring"
