"""Two inference processes of one deployment: they share one line, and one is enough."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.acceptance.running import Deployment, eventually, running_deployment

pytestmark = pytest.mark.services

SHORTLY_S = 60.0


@pytest.fixture(scope="module")
def doubled() -> Iterator[Deployment]:
    """A deployment whose list of devices names the CPU twice."""
    with running_deployment(SECONDREAD_DEVICE="cpu,cpu") as running:
        yield running


def test_a_device_that_stands_twice_has_two_processes_and_each_knows_its_one(doubled: Deployment) -> None:
    workers = doubled.workers("inference")

    assert len(workers) == 2
    assert [worker.environ()["SECONDREAD_DEVICE"] for worker in workers] == ["cpu", "cpu"]


def test_when_one_is_killed_the_other_reads_on(doubled: Deployment, small_studies: Sequence[bytes]) -> None:
    doubled.workers("inference")[0].kill()
    with ThreadPoolExecutor(len(small_studies)) as threads:
        cases = list(threads.map(doubled.door.answered, small_studies))

    assert [case["status"] for case in cases] == ["completed"] * len(small_studies)
    assert eventually(lambda: len(doubled.workers("inference")) == 2, within_s=SHORTLY_S)
