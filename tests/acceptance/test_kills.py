"""Two hundred cases, and in the middle of them a worker is killed or Redis is emptied: every case ends once, as if nothing was."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.acceptance.running import Deployment

pytestmark = pytest.mark.services

CASE_COUNT = 200
IN_FLIGHT = 16
MID_RUN = 60
"""So many cases have ended when it happens."""
RECOVERY_S = 90.0
"""For all to end, on a slow machine: a lease lapses after 6 s, an inference process loads its model in a few."""


@contextmanager
def two_hundred_cases(deployment: Deployment, studies: Sequence[bytes]) -> Iterator[Sequence[Future[str]]]:
    """Submit them from sixteen threads; the body runs meanwhile."""

    def send(number: int) -> str:
        case_id: str = deployment.door.accepted(studies[number % len(studies)])["case_id"]
        return case_id

    with ThreadPoolExecutor(IN_FLIGHT) as threads:
        yield [threads.submit(send, number) for number in range(CASE_COUNT)]


def interrupt_mid_run(deployment: Deployment, studies: Sequence[bytes], strike: Callable[[], object]) -> list[str]:
    """Strike when the sixtieth case has ended, and wait until all have."""
    with two_hundred_cases(deployment, studies) as submitted:
        deployment.door.ended(submitted[MID_RUN].result(), within_s=RECOVERY_S)
        strike()
    case_ids = [each.result() for each in submitted]
    for case_id in case_ids:
        deployment.door.ended(case_id, within_s=RECOVERY_S)
    return case_ids


def assert_each_ended_once(deployment: Deployment, case_ids: Sequence[str]) -> None:
    ids = [case_id.removeprefix("case_") for case_id in case_ids]
    assert len(set(ids)) == CASE_COUNT
    states = deployment.rows("SELECT state, count(*) FROM cases WHERE id = ANY(%s::uuid[]) GROUP BY 1", ids)
    assert states == [("completed", CASE_COUNT)]
    results = deployment.rows(
        "SELECT version, count(*), count(DISTINCT case_id) FROM results WHERE case_id = ANY(%s::uuid[]) GROUP BY 1", ids
    )
    assert results == [(1, CASE_COUNT, CASE_COUNT)]
    endings = deployment.rows(
        "SELECT entered_state, count(*), count(DISTINCT case_id) FROM case_events"
        " WHERE case_id = ANY(%s::uuid[]) AND entered_state IN ('completed', 'failed', 'cancelled') GROUP BY 1",
        ids,
    )
    assert endings == [("completed", CASE_COUNT, CASE_COUNT)]


@pytest.mark.parametrize("name", ["intake", "inference", "reporting", "sweeper"])
def test_all_cases_end_once_although_a_worker_is_killed(deployment: Deployment, small_studies: Sequence[bytes], name: str) -> None:
    victim = deployment.worker(name)

    case_ids = interrupt_mid_run(deployment, small_studies, victim.kill)

    assert_each_ended_once(deployment, case_ids)
    assert deployment.worker(name).pid != victim.pid


def test_all_cases_end_once_although_redis_is_emptied(deployment: Deployment, small_studies: Sequence[bytes]) -> None:
    with deployment.redis() as client:
        case_ids = interrupt_mid_run(deployment, small_studies, client.flushall)

    assert_each_ended_once(deployment, case_ids)
