"""Messages that die with a worker between Redis and its hands: gone for Redis, and yet the case ends once."""

import os
import signal
from collections.abc import Sequence
from multiprocessing.process import BaseProcess

import pytest
import redis
from celery import Celery

from pipeline.flow import Pool
from pipeline.persistence.ledger.claims import Rung
from tests.acceptance.running import eventually
from tests.integration.transport.conftest import START_LIMIT_S, Crew
from tests.integration.workers import crashing_worker
from tests.integration.workers.stub_cases import StubCases
from tests.integration.workers.stub_work import CLAIM_AND_RUN
from workers import sweeper
from workers.app import VISIBILITY_S, unacked_hash
from workers.doorbell import ring

pytestmark = pytest.mark.services

NOWHERE = "nowhere"
FREEZES = 20
"""A worker asks Redis for a second at a time, so some freezes come between two questions."""
ENDS_WITHIN_S = 30.0
UNHELD_S = 20.0
"""Far less than the visibility of what another dead worker held; six seconds on a machine at rest."""
FINISHED = {Pool.INTAKE: "awaiting_report", Pool.REPORTING: "completed"}


def queued_count(client: "redis.Redis", pool: Pool) -> int:
    return sum(client.llen(pool.value + step) for step in ("", "\x06\x163", "\x06\x166", "\x06\x169"))


def finished(cases: StubCases, pool: Pool, rungs: Sequence[Rung]) -> bool:
    states = cases.states()
    return all(states[rung.case_id] == FINISHED[pool] for rung in rungs)


@pytest.fixture
def lose_one(publisher: Celery, client: "redis.Redis", cases: StubCases) -> "Lose":
    return Lose(publisher, client, cases)


class Lose:
    """Loses a doorbell for certain."""

    def __init__(self, publisher: Celery, client: "redis.Redis", cases: StubCases) -> None:
        self._publisher, self._client, self._cases = publisher, client, cases

    def __call__(self, pool: Pool, worker: BaseProcess) -> Rung:
        """Freeze a worker that waits for a message, ring it, kill it; return whose doorbell it had."""
        assert worker.pid is not None
        held = self._client.hlen(unacked_hash(pool))
        for _ in range(FREEZES):
            (rung,) = self._cases.waiting(pool, 1)
            os.kill(worker.pid, signal.SIGSTOP)
            ring(self._publisher, pool, [rung])
            if queued_count(self._client, pool) == 0:
                worker.kill()
                worker.join()
                assert self._client.hlen(unacked_hash(pool)) == held
                return rung
            os.kill(worker.pid, signal.SIGCONT)
            assert eventually(lambda rung=rung: finished(self._cases, pool, [rung]), within_s=ENDS_WITHIN_S)  # type: ignore[misc]
        raise AssertionError("the worker was never waiting when it was frozen")


@pytest.mark.parametrize("pool", [Pool.INTAKE, Pool.REPORTING])
def test_a_message_that_died_in_a_frozen_workers_socket_is_rung_again_and_its_case_ends_once(
    crew: Crew, cases: StubCases, lose_one: Lose, pool: Pool
) -> None:
    frozen = crew.start("frozen", crashing_worker.main, pool, NOWHERE)
    lost = lose_one(pool, frozen)

    crew.begin("heir", crashing_worker.main, pool, NOWHERE)
    crew.start("sweeper", sweeper.main)

    assert eventually(lambda: finished(cases, pool, [lost]), within_s=ENDS_WITHIN_S)
    assert cases.rows()[lost.case_id].tries <= 1
    assert pool is Pool.INTAKE or cases.said(lost.case_id) == (1, 1, 1)


def test_a_lost_doorbell_does_not_wait_until_another_dead_workers_message_comes_back(
    crew: Crew, cases: StubCases, client: "redis.Redis", publisher: Celery, lose_one: Lose
) -> None:
    pool = Pool.REPORTING
    rungs = cases.waiting(pool, 1)
    ring(publisher, pool, rungs)
    dead = crew.begin("dead", crashing_worker.main, pool, CLAIM_AND_RUN)
    dead.join(START_LIMIT_S)
    frozen = crew.start("frozen", crashing_worker.main, pool, NOWHERE)
    lost = lose_one(pool, frozen)
    assert client.hlen(unacked_hash(pool)) == 1

    crew.begin("heir", crashing_worker.main, pool, NOWHERE)
    crew.start("sweeper", sweeper.main)

    assert eventually(lambda: finished(cases, pool, [lost]), within_s=UNHELD_S)
    assert VISIBILITY_S[pool] > UNHELD_S
    assert eventually(lambda: finished(cases, pool, rungs), within_s=ENDS_WITHIN_S)
    assert {cases.said(rung.case_id) for rung in (lost, *rungs)} == {(1, 1, 1)}
