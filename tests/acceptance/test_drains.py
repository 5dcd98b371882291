"""A pool is asked to stop while cases flow through it, as in a rolling restart: it ends soon, and nobody notices."""

from collections.abc import Sequence

import psutil
import pytest

from tests.acceptance.crowd import RECOVERY_S, assert_each_ended_once, flowing
from tests.acceptance.receiver import running_receiver
from tests.acceptance.running import START_LIMIT_S, Deployment, eventually
from tests.patience import PATIENCE

pytestmark = pytest.mark.services

STOPS_WITHIN_S = 10.0 * PATIENCE
POOLS = ("intake", "inference", "reporting", "delivery")
HELD = {
    "delivery": "SELECT count(*) FROM deliveries WHERE state = 'pending' AND lease_until > clock_timestamp()",
    **dict.fromkeys(POOLS[:3], "SELECT count(*) FROM cases WHERE claimed_by LIKE %s"),
}
"""What a pool has in its hands."""
CLAIMS = 3
"""Of a case that was done once: one by each pool."""


def held_count(deployment: Deployment, name: str) -> int:
    ((count,),) = deployment.rows(HELD[name], *([f"{name}@%"] if "%s" in HELD[name] else []))
    return int(count)


def stop_at_work(deployment: Deployment, name: str) -> None:
    """Ask a pool that has work in its hands to stop; it must end in time and leave nothing claimed."""
    worker = deployment.worker(name)
    assert eventually(lambda: held_count(deployment, name) > 0, within_s=RECOVERY_S)
    worker.terminate()
    psutil.wait_procs([worker], timeout=STOPS_WITHIN_S)
    assert not worker.is_running(), f"{name} did not stop"
    assert deployment.rows("SELECT count(*) FROM cases WHERE claimed_by LIKE %s", f"{name}@%-{worker.pid}") == [(0,)]
    assert eventually(lambda: deployment.worker(name).pid != worker.pid, within_s=START_LIMIT_S)


def test_each_pool_stops_within_ten_seconds_at_work_and_no_case_is_lost_done_twice_or_kept_waiting_for_a_lease(
    deployment: Deployment, small_studies: Sequence[bytes]
) -> None:
    with running_receiver() as receiver:
        endpoint_id = deployment.door.http.post("/v1/webhook-endpoints", json={"url": receiver.url}).json()["webhook_endpoint_id"]
        with flowing(deployment, small_studies, webhook_endpoint_id=endpoint_id) as case_ids:
            for name in POOLS:
                stop_at_work(deployment, name)
        delivered = receiver.wait_for(len(case_ids))

    assert_each_ended_once(deployment, case_ids)
    ids = [case_id.removeprefix("case_") for case_id in case_ids]
    assert deployment.rows("SELECT DISTINCT attempt FROM cases WHERE id = ANY(%s::uuid[])", ids) == [(CLAIMS,)]
    lapsed = "SELECT count(*) FROM case_events WHERE case_id = ANY(%s::uuid[]) AND code = 'lease-expired'"
    assert deployment.rows(lapsed, ids) == [(0,)]
    assert len({each.message_id for each in delivered}) == len(delivered) == len(case_ids)
