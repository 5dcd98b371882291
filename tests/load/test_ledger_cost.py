"""`make ledger` in small: every reading is there, and says what two seconds of load must have cost."""

import pytest

from tests.faults.servers import running_servers
from tests.load.ledger_cost import Plan, measure
from tests.load.ledger_readings import TABLES, Sample

pytestmark = pytest.mark.services

SMALL = Plan(window_s=2.0, in_flight=16, warm_cases=24, alone_cases=6, alone_gap_s=0.05, lead_in_s=0.5)


def test_every_figure_is_measured() -> None:
    samples: list[Sample] = []
    with running_servers() as servers:
        outcome = measure(servers, SMALL, lambda completed, doing: None, lambda before, now: samples.append(now))
    cost = outcome.cost

    assert (outcome.verdict.lost, outcome.verdict.double, outcome.verdict.failed, len(outcome.verdict.violations)) == (0, 0, 0, 0)
    assert outcome.alone.count == SMALL.alone_cases
    assert outcome.verdict.cases >= SMALL.warm_cases + SMALL.alone_cases + cost.cases
    assert set(cost.cpu_ms) == {"intake", "inference", "reporting", "sweeper", "guard", "door", "valkey", "postgres"}
    # Seven changes of state, at most eight cases a statement; a claim, a result and its events are some kilobytes of log.
    assert cost.commits > 7 / 8
    assert 2_000 < cost.wal_bytes < 200_000
    assert cost.wal_fsyncs > 0
    assert 0 < cost.hot_share < 1
    assert len(samples) == SMALL.sample_count
    assert all(set(third.most_dead_rows) == set(TABLES) for third in cost.thirds)
