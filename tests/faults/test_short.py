"""The fault harness in small: four hundred cases, all workers are killed four times, and once Redis with them."""

import pytest

from tests.faults.kills import EVERY, killed_workers
from tests.faults.servers import running_servers

pytestmark = pytest.mark.services

CASES = 400


def test_nothing_is_lost_or_doubled_although_all_workers_are_killed_and_a_redis_that_keeps_nothing() -> None:
    with running_servers() as servers:
        row = killed_workers(servers, lambda completed, doing: None, cases=CASES, kills=EVERY, valkey_too=True)

    assert row.times == EVERY
    assert row.verdict.cases >= CASES
    assert (row.verdict.lost, row.verdict.double, row.verdict.unanswered) == (0, 0, 0)
    # How soon, the command judges: this machine may be slow.
    assert (row.verdict.violations, row.verdict.failed) == ((), 0)
    # The kills struck work: without this the test could pass although nothing ran.
    assert row.verdict.reexecuted > 0
