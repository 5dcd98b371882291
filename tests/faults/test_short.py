"""The fault harness in small: four hundred cases, three times all workers are killed."""

import pytest

from tests.faults.kills import killed_workers
from tests.faults.servers import running_servers

pytestmark = pytest.mark.services

CASES, KILLS = 400, 3


def test_nothing_is_lost_or_doubled_although_all_workers_are_killed_three_times() -> None:
    with running_servers() as servers:
        row = killed_workers(servers, lambda completed, doing: None, cases=CASES, kills=KILLS)

    assert row.times == KILLS
    assert row.verdict.cases >= CASES
    assert (row.verdict.lost, row.verdict.double, row.verdict.unanswered) == (0, 0, 0)
    assert row.shortfalls == ()
    # The kills struck work: without this the test could pass although nothing ran.
    assert row.verdict.reexecuted > 0
