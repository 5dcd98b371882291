"""Two sweepers and two guards run, and one of each leads: what happens when it is killed, and when it is frozen."""

from collections.abc import Sequence
from time import monotonic, time

import httpx
import psutil
import pytest

from pipeline.persistence.ledger.leadership import SILENCE_S
from tests.acceptance.running import START_LIMIT_S, Deployment, eventually
from tests.patience import PATIENCE

pytestmark = pytest.mark.services

TAKEOVER_S = 3.0 * PATIENCE
LAST_ROUND = {
    "sweeper": "secondread_reconciler_last_success_timestamp_seconds",
    "guard": "secondread_guard_last_success_timestamp_seconds",
}
"""What Prometheus reads of a role's rounds."""
LEADERS_PORT = """
SELECT a.client_port FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND a.application_name = %s
"""
ASKS = "SELECT 1 FROM pg_stat_activity WHERE application_name = %s"

both_roles = pytest.mark.parametrize("role", LAST_ROUND)


def session_of(role: str) -> str:
    return f"secondread leader {role}"


def leader_of(deployment: Deployment, role: str, instances: Sequence[psutil.Process]) -> psutil.Process | None:
    """The process at the other end of the session that holds the lock, as PostgreSQL and the kernel tell."""
    ports = {port for (port,) in deployment.rows(LEADERS_PORT, session_of(role))}
    leaders = [each for each in instances if each.is_running() and ports & _ports_of(each)]
    assert len(leaders) <= 1
    return leaders[0] if leaders else None


def _ports_of(process: psutil.Process) -> set[int]:
    try:
        return {connection.laddr.port for connection in process.net_connections() if connection.laddr}
    except psutil.Error:
        return set()


def both_of(deployment: Deployment, role: str) -> tuple[psutil.Process, psutil.Process]:
    """(the leader, the follower), once both run."""
    two = eventually(lambda: found if len(found := deployment.workers(role)) == 2 else [], within_s=START_LIMIT_S)
    leader = eventually(lambda: leader_of(deployment, role, two), within_s=START_LIMIT_S)
    assert leader is not None
    # The follower is one that asks already, not one that is still loading.
    assert eventually(lambda: len(deployment.rows(ASKS, session_of(role))) == 2, within_s=START_LIMIT_S)
    (follower,) = (each for each in two if each.pid != leader.pid)
    return leader, follower


def last_round_at(deployment: Deployment, role: str) -> float:
    """When the role's leader last finished a round, in Unix seconds."""
    lines = httpx.get(f"{deployment.access.metrics_url}/metrics", trust_env=False).text.splitlines()
    (line,) = (each for each in lines if each.startswith(LAST_ROUND[role]))
    return float(line.split()[-1])


@both_roles
def test_when_the_leader_is_killed_the_other_leads_and_works_within_three_seconds(deployment: Deployment, role: str) -> None:
    leader, follower = both_of(deployment, role)

    killed_at, began_at = time(), monotonic()
    leader.kill()

    assert eventually(lambda: leader_of(deployment, role, [follower]), within_s=TAKEOVER_S) is not None
    # Later than the dead one's last: it was dead by then.
    assert eventually(lambda: last_round_at(deployment, role) > killed_at + 0.1, within_s=TAKEOVER_S - (monotonic() - began_at))
    both_of(deployment, role)


@both_roles
def test_a_frozen_leader_holds_nobody_up_for_long_and_is_a_follower_when_it_wakes(deployment: Deployment, role: str) -> None:
    leader, follower = both_of(deployment, role)

    leader.suspend()
    try:
        assert eventually(lambda: leader_of(deployment, role, [follower]), within_s=SILENCE_S + TAKEOVER_S) is not None
    finally:
        leader.resume()

    assert both_of(deployment, role) == (follower, leader)
