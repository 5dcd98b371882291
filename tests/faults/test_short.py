"""The fault harness in small: four hundred cases, and all workers are killed several times, once with Redis."""

import pytest

from tests.faults.kills import EVERY, killed_workers
from tests.faults.servers import running_servers

pytestmark = pytest.mark.services

CASES = 400


@pytest.mark.parametrize(("kills", "valkey_too"), [(3, False), (EVERY, True)], ids=["workers", "workers and a Redis that keeps nothing"])
def test_nothing_is_lost_or_doubled_although_all_are_killed_several_times(kills: int, valkey_too: bool) -> None:
    with running_servers() as servers:
        row = killed_workers(servers, lambda completed, doing: None, cases=CASES, kills=kills, valkey_too=valkey_too)

    assert row.times == kills
    assert row.verdict.cases >= CASES
    assert (row.verdict.lost, row.verdict.double, row.verdict.unanswered) == (0, 0, 0)
    # How soon, the command judges: this machine may be slow.
    assert (row.verdict.violations, row.verdict.failed) == ((), 0)
    # The kills struck work: without this the test could pass although nothing ran.
    assert row.verdict.reexecuted > 0
