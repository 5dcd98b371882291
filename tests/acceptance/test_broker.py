"""Redis is killed, cut off from everybody, frozen or gone: every case ends once, and the door goes on taking cases."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from threading import Event
from time import monotonic

import psutil
import pytest

from tests.acceptance.crowd import IN_FLIGHT, RECOVERY_S, assert_each_ended_once, flowing
from tests.acceptance.running import START_LIMIT_S, Deployment, eventually, frozen
from tests.patience import PATIENCE

pytestmark = pytest.mark.services

FROZEN_S = 10.0
HELD_S = 3.0 * PATIENCE
"""Longest that a Redis which does not answer may hold a submission."""
SUBMISSIONS = 3
"""The first finds a connection that was good, the next find none."""

Strike = Callable[[Deployment], None]


def kill(deployment: Deployment) -> None:
    """`kill -9`; the supervisor starts it again, and it reads what it had written down."""
    deployment.server("valkey").kill()


def cut_off(deployment: Deployment) -> None:
    """Close every connection that anybody has."""
    with deployment.redis() as client:
        assert sum(client.client_kill_filter(_type=kind, skipme=True) for kind in ("normal", "pubsub")) > 0


def freeze(deployment: Deployment) -> None:
    """Let it stand still for as long as the name says."""
    with frozen(deployment.server("valkey")):
        Event().wait(FROZEN_S)


@pytest.mark.parametrize("strike", [kill, cut_off, freeze])
def test_all_cases_end_once_and_those_that_come_later_are_read_as_ever(
    deployment: Deployment, small_studies: Sequence[bytes], strike: Strike
) -> None:
    with deployment.redis() as client:
        assert client.info("persistence")["aof_enabled"] == 1

    with flowing(deployment, small_studies) as case_ids:
        assert eventually(lambda: len(case_ids) >= 2 * IN_FLIGHT, within_s=RECOVERY_S)
        strike(deployment)
        count = len(case_ids)
        # More than all clients had in flight: cases that came after the fault have ended too.
        assert eventually(lambda: len(case_ids) >= count + 2 * IN_FLIGHT, within_s=RECOVERY_S)

    assert_each_ended_once(deployment, case_ids)


@contextmanager
def gone(deployment: Deployment) -> Iterator[None]:
    """Redis is dead, and nobody starts it again: the supervisor stands still."""
    supervisor, server = psutil.Process(deployment.process.pid), deployment.server("valkey")
    with frozen(supervisor):
        server.kill()
        assert eventually(lambda: server.status() == psutil.STATUS_ZOMBIE, within_s=START_LIMIT_S)
        yield


@contextmanager
def standing_still(deployment: Deployment) -> Iterator[None]:
    with frozen(deployment.server("valkey")):
        yield


@pytest.mark.parametrize("unreachable", [gone, standing_still])
def test_a_case_is_accepted_within_three_seconds_without_redis_and_is_read_once_when_redis_is_back(
    deployment: Deployment, small_studies: Sequence[bytes], unreachable: Callable[[Deployment], AbstractContextManager[None]]
) -> None:
    usual_s, _ = submission(deployment, small_studies[0])

    with unreachable(deployment):
        submitted = [submission(deployment, small_studies[number]) for number in range(SUBMISSIONS)]

    assert max(took_s for took_s, _ in submitted) < usual_s + HELD_S
    case_ids = [case_id for _, case_id in submitted]
    for case_id in case_ids:
        deployment.door.ended(case_id, within_s=RECOVERY_S)
    assert_each_ended_once(deployment, case_ids)


def submission(deployment: Deployment, study: bytes) -> tuple[float, str]:
    """Seconds until a case is accepted, and its id."""
    begun = monotonic()
    case_id: str = deployment.door.accepted(study)["case_id"]
    return monotonic() - begun, case_id
