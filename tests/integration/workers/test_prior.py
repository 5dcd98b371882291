"""An inference process that starts where its model was profiled knows from the card what a batch costs."""

from dataclasses import replace
from datetime import datetime

import pytest
import torch

from pipeline.batching.latency import LatencyModel
from pipeline.flow import Pool
from pipeline.inference.card import SHIPPED_MODELS, load_card
from pipeline.inference.devices import cpu_name
from pipeline.inference.profiling import prior
from pipeline.inference.profiling.cards import FOLDER, keep
from schemas.performance_card import BatchCost, PerformanceCard
from workers.inference import build
from workers.stage_task import PoolRuntime

pytestmark = pytest.mark.services

# No machine measures these: 5 s and a tenth a batch, which is believed here however fast the machine is.
SECONDS = {images: 5.0 + 0.1 * images for images in (1, 2, 4, 8, 16)}


@pytest.fixture
def card(noon: datetime) -> PerformanceCard:
    """A card of the shipped model on this machine."""
    (folder,) = (path for path in SHIPPED_MODELS.iterdir() if path.is_dir())
    model = load_card(folder)
    batches = [
        BatchCost(images=images, run_count=5, median_s=seconds, p10_s=seconds, p90_s=seconds, images_per_s=images / seconds)
        for images, seconds in SECONDS.items()
    ]
    return PerformanceCard(
        model=model.reference,
        weights_sha256=model.weights_sha256,
        bucket=model.input.side_px,
        device="cpu",
        device_name=cpu_name(),
        threads=1,
        torch_version=torch.__version__,
        measured_at=noon,
        counted_flops=1,
        forward_s=1.0,
        layers=(),
        batches=tuple(batches),
        knee=16,
    )


def test_the_cost_of_a_batch_comes_from_the_card(runtime: PoolRuntime, card: PerformanceCard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prior, "BELIEVED_WITHIN", float("inf"))
    keep(card, runtime.services.settings.state_dir / FOLDER)
    former, stop = build(replace(runtime, pool=Pool.INFERENCE))
    stop()

    (line,) = former.lines
    assert line.latency == LatencyModel.from_sweep(SECONDS)
    assert line.latency.seconds(1) == pytest.approx(5.1)


def test_a_card_that_is_far_off_is_not_believed(runtime: PoolRuntime, card: PerformanceCard) -> None:
    keep(card, runtime.services.settings.state_dir / FOLDER)
    former, stop = build(replace(runtime, pool=Pool.INFERENCE))
    stop()

    (line,) = former.lines
    assert line.latency.seconds(1) < 5.0
