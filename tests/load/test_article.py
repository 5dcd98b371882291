"""`make article` in small: real processes on emulated devices carry a few seconds of load, and every figure is there."""

import pytest

from tests.faults.servers import running_servers
from tests.load.article.__main__ import phase_figures
from tests.load.article.pipeline import running_pipeline
from tests.load.article.scale import COST, Phase

pytestmark = pytest.mark.services

LIGHT = Phase(60, p99_s=None)


def test_a_load_is_carried_by_the_real_pipeline() -> None:
    with running_servers() as servers, running_pipeline(servers, lambda doing: None) as pipeline:
        seen = pipeline.carry("light", LIGHT, seconds=4.0, seed=1)
    figures = {figure.what: figure for figure in phase_figures(LIGHT, seen)}

    assert seen.cases > 10
    assert seen.incomplete == 0
    # However late on a slow machine, every case went through a device once.
    assert sum(seen.batch_images) == seen.cases == len(seen.waits)
    # No answer comes sooner than a device can give it.
    assert min(seen.waits_s) > (1 - COST.spread) * COST.mean_s(1)
    assert figures["images"].value == seen.cases
