"""Whole rounds of the sweeper on a real ledger and a real Valkey: how much they ring, and who runs them."""

import json
import threading
import time
from typing import Any

import pytest
import redis
from celery import Celery
from prometheus_client import REGISTRY

from pipeline.cases.states import CaseState
from pipeline.flow import Pool
from pipeline.persistence.ledger.claims import HandOn, hand_on
from pipeline.persistence.ledger.engine import Ledger
from pipeline.persistence.ledger.leadership import Leadership
from pipeline.persistence.ledger.sweep import RINGS_A_ROUND
from workers import sweeper as process
from workers.app import unacked_hash, unacked_index
from workers.sweeper import CLAIMED_WITHIN_S, Sweeper, sweep_while_leading
from workers.wiring import Services

pytestmark = pytest.mark.services

Cases = Any
"""The factory of `conftest.py`."""
OLD_S = 60.0
LIMIT_S = 10.0


@pytest.fixture
def sweeper(services: Services, app: Celery) -> Sweeper:
    return Sweeper(services, app)


def rung_in(client: "redis.Redis", pool: Pool) -> int:
    """Cases that the doorbells of a pool's routine lane name."""
    messages = [json.loads(raw) for raw in client.lrange(f"{pool.value}\x06\x166", 0, -1)]
    return sum(len(json.loads(message["headers"]["kwargsrepr"])["case_ids"]) for message in messages)


def rounds_that_spent_all() -> float:
    return REGISTRY.get_sample_value("secondread_ring_budget_spent_total") or 0.0


def test_a_storm_of_lapsed_claims_is_rung_as_the_budget_allows(sweeper: Sweeper, services: Services, cases: Cases) -> None:
    claims = [cases.claimed() for _ in range(120)]
    cases.lapse(*(claim.case_id for claim in claims))
    before = rounds_that_spent_all()

    rung = []
    for _ in range(4):
        sweeper.round()
        rung.append(rung_in(services.redis, Pool.INTAKE))

    assert rung == [RINGS_A_ROUND, 2 * RINGS_A_ROUND, 120, 120]
    assert rounds_that_spent_all() - before == 2


def test_what_is_nearest_to_its_answer_is_rung_first(sweeper: Sweeper, services: Services, cases: Cases) -> None:
    claims = [cases.claimed(pool) for pool in (Pool.INTAKE, Pool.REPORTING) for _ in range(RINGS_A_ROUND)]
    cases.lapse(*(claim.case_id for claim in claims))

    sweeper.round()

    assert (rung_in(services.redis, Pool.REPORTING), rung_in(services.redis, Pool.INTAKE)) == (RINGS_A_ROUND, 0)


def test_after_redis_was_emptied_all_are_rung_at_once_and_once(sweeper: Sweeper, services: Services, cases: Cases) -> None:
    lost = [cases.accepted() for _ in range(3 * RINGS_A_ROUND)]
    cases.age(*lost, seconds=OLD_S)

    sweeper.round()
    after_one = rung_in(services.redis, Pool.INTAKE)
    cases.age(*lost, seconds=OLD_S)
    sweeper.round()

    assert after_one == 3 * RINGS_A_ROUND
    assert rung_in(services.redis, Pool.INTAKE) == after_one


def test_more_than_a_slice_is_rung_slice_by_slice_although_the_queue_is_not_empty_any_more(
    sweeper: Sweeper, services: Services, cases: Cases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "SLICE_AFTER_LOSS", 20)
    lost = [cases.accepted() for _ in range(50)]
    cases.age(*lost, seconds=OLD_S)

    rung = []
    for _ in range(4):
        sweeper.round()
        cases.age(*lost, seconds=OLD_S)
        rung.append(rung_in(services.redis, Pool.INTAKE))

    assert rung == [20, 40, 50, 50]


def test_what_was_published_just_before_the_loss_is_rung_by_the_second_look(sweeper: Sweeper, services: Services, cases: Cases) -> None:
    old, fresh = cases.accepted(), cases.accepted()
    cases.age(old, seconds=OLD_S)
    sweeper.round()
    after_one = rung_in(services.redis, Pool.INTAKE)
    cases.age(fresh, seconds=OLD_S)

    sweeper.round()

    assert (after_one, rung_in(services.redis, Pool.INTAKE)) == (1, 2)


@pytest.mark.parametrize(("held_s", "rung_count"), [(0.0, 0), (CLAIMED_WITHIN_S / 2, 0), (CLAIMED_WITHIN_S + 1, 1)])
def test_what_was_taken_a_moment_ago_may_yet_be_claimed_and_what_was_taken_before_holds_up_no_lost_doorbell(
    sweeper: Sweeper, services: Services, cases: Cases, held_s: float, rung_count: int
) -> None:
    cases.age(cases.accepted(), seconds=OLD_S)
    services.redis.hset(unacked_hash(Pool.INTAKE), "tag", "a message")
    services.redis.zadd(unacked_index(Pool.INTAKE), {"tag": time.time() - held_s})

    sweeper.round()

    assert rung_in(services.redis, Pool.INTAKE) == rung_count


def test_a_doorbell_that_was_rung_again_is_not_rung_once_more_while_it_waits_in_the_queue(
    sweeper: Sweeper, services: Services, cases: Cases
) -> None:
    lost = cases.accepted()
    services.redis.zadd(unacked_index(Pool.INTAKE), {"tag": time.time() - OLD_S})
    for _ in range(5):
        cases.age(lost, seconds=OLD_S)
        sweeper.round()

    assert rung_in(services.redis, Pool.INTAKE) == 1


def test_an_emptied_line_is_filled_page_by_page_in_one_round_and_rung_once(
    sweeper: Sweeper, services: Services, ledger: Ledger, cases: Cases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "SLICE", 10)
    model = next(iter(services.cards))
    prepared = {"prepared": {"model": model, "model_input": {"shape": [1, 1, 256, 256]}}}
    claims = [cases.claimed() for _ in range(35)]
    done = [HandOn(claim.case_id, claim.attempt, prepared, {}) for claim in claims]
    left, entered = CaseState.FETCHING, CaseState.AWAITING_INFERENCE
    assert len(hand_on(ledger, done, left=left, entered=entered, worker="w1")) == 35
    cases.age(*(claim.case_id for claim in claims), seconds=OLD_S)

    sweeper.round()

    assert services.line(model).length() == 35
    assert rung_in(services.redis, Pool.INFERENCE) == 1


def test_only_the_leader_sweeps_and_a_follower_takes_over(
    services: Services, ledger: Ledger, cases: Cases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "ROUND_S", 0.02)
    rounds: list[str] = []
    ran = threading.Condition()

    def note(_: Sweeper) -> None:
        with ran:
            rounds.append(threading.current_thread().name)
            ran.notify_all()

    monkeypatch.setattr(Sweeper, "round", note)
    instances = {name: (Leadership(ledger, "sweeper-test"), threading.Event()) for name in ("one", "two")}
    threads = [
        threading.Thread(target=sweep_while_leading, args=(services, leadership, stop), name=name)
        for name, (leadership, stop) in instances.items()
    ]
    for thread in threads:
        thread.start()
    with ran:
        assert ran.wait_for(lambda: len(rounds) >= 10, LIMIT_S)
        (leader,) = set(rounds)
    leadership, stop = instances[leader]
    stop.set()
    next(thread for thread in threads if thread.name == leader).join(LIMIT_S)
    leadership.close()

    with ran:
        assert ran.wait_for(lambda: rounds[-1] != leader, LIMIT_S)
    for _, stop in instances.values():
        stop.set()
    for thread in threads:
        thread.join(LIMIT_S)
    for leadership, _ in instances.values():
        leadership.close()
