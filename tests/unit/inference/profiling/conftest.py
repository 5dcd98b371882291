"""A performance card of the small model that nobody measured."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.inference.devices import cpu_name
from pipeline.inference.profiling.sweep import knee
from schemas.model_card import ModelCard
from schemas.performance_card import PerformanceCard
from tests.unit.inference.profiling.made_up import MakeCard, batch_of


@pytest.fixture
def make_card(small: tuple[Path, ModelCard]) -> MakeCard:
    """Make a card of the small model on this CPU, from seconds by batch size."""

    def make(seconds: dict[int, float], **different: Any) -> PerformanceCard:
        batches = tuple(batch_of(images, median_s) for images, median_s in seconds.items())
        card = PerformanceCard(
            model=small[1].reference,
            weights_sha256=small[1].weights_sha256,
            bucket=small[1].input.side_px,
            device="cpu",
            device_name=cpu_name(),
            threads=torch.get_num_threads(),
            torch_version=torch.__version__,
            measured_at=datetime(2026, 1, 2, tzinfo=UTC),
            predicted_flops=1000,
            counted_flops=1000,
            forward_s=0.01,
            layers=(),
            batches=batches,
            knee=knee(batches),
        )
        return card.model_copy(update=different)

    return make
