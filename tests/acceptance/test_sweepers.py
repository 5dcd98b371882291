"""Two sweepers run and one leads: what happens when it is killed, and when it is frozen."""

from collections.abc import Sequence
from time import monotonic, time

import httpx
import psutil
import pytest

from pipeline.persistence.ledger.leadership import SILENCE_S
from tests.acceptance.running import START_LIMIT_S, Deployment, eventually

pytestmark = pytest.mark.services

TAKEOVER_S = 3.0
LEADERS_PORT = """
SELECT a.client_port FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND a.application_name = 'secondread leader sweeper'
"""


def leader_of(deployment: Deployment, sweepers: Sequence[psutil.Process]) -> psutil.Process | None:
    """The sweeper at the other end of the session that holds the lock, as PostgreSQL and the kernel tell."""
    ports = {port for (port,) in deployment.rows(LEADERS_PORT)}
    leaders = [each for each in sweepers if each.is_running() and ports & _ports_of(each)]
    assert len(leaders) <= 1
    return leaders[0] if leaders else None


def _ports_of(process: psutil.Process) -> set[int]:
    try:
        return {connection.laddr.port for connection in process.net_connections() if connection.laddr}
    except psutil.Error:
        return set()


def both_sweepers(deployment: Deployment) -> tuple[psutil.Process, psutil.Process]:
    """(the leader, the follower), once both run."""
    two = eventually(lambda: found if len(found := deployment.workers("sweeper")) == 2 else [], within_s=START_LIMIT_S)
    leader = eventually(lambda: leader_of(deployment, two), within_s=START_LIMIT_S)
    assert leader is not None
    # The follower is one that asks already, not one that is still loading.
    asks = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'secondread leader sweeper'"
    assert eventually(lambda: len(deployment.rows(asks)) == 2, within_s=START_LIMIT_S)
    (follower,) = (each for each in two if each.pid != leader.pid)
    return leader, follower


def last_round_at(deployment: Deployment) -> float:
    """When a sweeper last finished a round, in Unix seconds, as Prometheus reads it."""
    lines = httpx.get(f"{deployment.access.metrics_url}/metrics", trust_env=False).text.splitlines()
    (line,) = (each for each in lines if each.startswith("secondread_reconciler_last_success_timestamp_seconds"))
    return float(line.split()[-1])


def test_when_the_leading_sweeper_is_killed_the_other_leads_and_sweeps_within_three_seconds(deployment: Deployment) -> None:
    leader, follower = both_sweepers(deployment)

    killed_at, began_at = time(), monotonic()
    leader.kill()

    assert eventually(lambda: leader_of(deployment, [follower]), within_s=TAKEOVER_S) is not None
    # Later than the dead one's last: it was dead by then.
    assert eventually(lambda: last_round_at(deployment) > killed_at + 0.1, within_s=TAKEOVER_S - (monotonic() - began_at))
    print(f"took over and swept {monotonic() - began_at:.2f} s after the kill")
    both_sweepers(deployment)


def test_a_frozen_leader_holds_nobody_up_for_long_and_is_a_follower_when_it_wakes(deployment: Deployment) -> None:
    leader, follower = both_sweepers(deployment)

    leader.suspend()
    try:
        assert eventually(lambda: leader_of(deployment, [follower]), within_s=SILENCE_S + TAKEOVER_S) is not None
    finally:
        leader.resume()

    assert both_sweepers(deployment) == (follower, leader)
