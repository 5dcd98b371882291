"""What the transport alone brings back of a dead worker, and when: after its pool's visibility, whatever the other pools' are."""

import pytest

from pipeline.flow import Pool
from tests.integration.transport.witness import Taken, await_notes
from tests.patience import PATIENCE
from workers.app import VISIBILITY_S

pytestmark = pytest.mark.services

LATE_S = 2.0
"""The sweep looks every second."""
SLOW_MACHINE_S = 8.0 * PATIENCE
SHORTEST_FIRST = sorted(VISIBILITY_S, key=VISIBILITY_S.__getitem__)


@pytest.mark.parametrize("pool", SHORTEST_FIRST)
def test_a_dead_workers_message_comes_back_after_its_pools_visibility_and_not_before(died_at_work: dict[Pool, Taken], pool: Pool) -> None:
    taken = died_at_work[pool]

    _, second = await_notes(taken.notes, 2, within_s=VISIBILITY_S[pool] + LATE_S + SLOW_MACHINE_S)

    assert second.is_redelivered
    assert second.pid != taken.first.pid
    assert VISIBILITY_S[pool] <= second.at - taken.fetched_at <= VISIBILITY_S[pool] + LATE_S + SLOW_MACHINE_S
