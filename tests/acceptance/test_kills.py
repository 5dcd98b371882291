"""Two hundred cases, and in the middle of them a worker is killed or Redis is emptied: every case ends once, as if nothing was."""

from collections.abc import Sequence

import pytest

from tests.acceptance.crowd import assert_each_ended_once, interrupt_mid_run
from tests.acceptance.running import Deployment

pytestmark = pytest.mark.services

CASE_COUNT = 200


@pytest.mark.parametrize("name", ["intake", "inference", "reporting", "sweeper"])
def test_all_cases_end_once_although_a_worker_is_killed(deployment: Deployment, small_studies: Sequence[bytes], name: str) -> None:
    victim = deployment.worker(name)

    case_ids = interrupt_mid_run(deployment, small_studies, victim.kill, case_count=CASE_COUNT)

    assert_each_ended_once(deployment, case_ids)
    assert deployment.worker(name).pid != victim.pid


def test_all_cases_end_once_although_redis_is_emptied(deployment: Deployment, small_studies: Sequence[bytes]) -> None:
    with deployment.redis() as client:
        case_ids = interrupt_mid_run(deployment, small_studies, client.flushall, case_count=CASE_COUNT)

    assert_each_ended_once(deployment, case_ids)
