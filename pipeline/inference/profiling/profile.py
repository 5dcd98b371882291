"""Measures one model on one device, from the FLOPs that can be foretold to the batch matrix."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pipeline.inference.devices import name_of, require_device
from pipeline.inference.failures import OutOfDeviceMemory
from pipeline.inference.profiling.flops import count_flops, predict_flops
from pipeline.inference.profiling.layers import layer_costs
from pipeline.inference.profiling.sweep import SECONDS, knee, sweep
from pipeline.inference.runner import ModelRunner
from schemas.performance_card import BatchCost, PerformanceCard


@dataclass(frozen=True, slots=True)
class Ask:
    """What is measured, and how long."""

    device: str = "cpu"
    threads: int = 1
    sizes: Sequence[int] = (1, 2, 4, 8, 16)
    seconds: float = SECONDS
    """On each batch size."""


def profile(folder: Path, ask: Ask, *, at: datetime, tell: Callable[[str], None] = lambda doing: None) -> PerformanceCard:
    """Measure a model folder; `tell` hears what comes next.

    Raises
    ------
    DeviceAbsent
        Torch does not see the device.
    OutOfDeviceMemory
        Not even one of the batch sizes fits.
    BadModelFolder, WeightsRefused, BadOutput, ModelFailed
        As `ModelRunner.load` and `ModelRunner.run`.
    """
    require_device(ask.device)
    tell("loading the model")
    runner = ModelRunner.load(folder, device=ask.device, threads=ask.threads)
    stated = runner.card.input
    tell("foretelling the operations, without data")
    predicted = predict_flops(runner.network, (1, stated.channels, stated.side_px, stated.side_px))
    tell("counting them in a real run")
    display = _shown(runner)
    counted = count_flops(runner.network, display)
    tell("timing the layers")
    forward_s, layers = layer_costs(runner.network, display, counted)
    batches, does_not_fit = _measured(runner, ask, tell)
    return PerformanceCard(
        model=runner.card.reference,
        weights_sha256=runner.card.weights_sha256,
        bucket=stated.side_px,
        device=ask.device,
        device_name=name_of(ask.device),
        threads=ask.threads,
        torch_version=torch.__version__,
        measured_at=at,
        predicted_flops=predicted[""] if predicted else None,
        counted_flops=counted[""],
        forward_s=forward_s,
        layers=layers,
        batches=batches,
        knee=knee(batches),
        does_not_fit=does_not_fit,
    )


def _measured(runner: ModelRunner, ask: Ask, tell: Callable[[str], None]) -> tuple[tuple[BatchCost, ...], int | None]:
    """Return the batch sizes that the device's memory holds, and the smallest that it does not."""
    tried = 0

    def next_is(images: int) -> None:
        nonlocal tried
        tried = images
        tell(f"batches of {images}")

    batches: list[BatchCost] = []
    try:
        batches.extend(sweep(runner, ask.sizes, seconds=ask.seconds, tell=next_is))
    except OutOfDeviceMemory:
        if not batches:
            raise
        return tuple(batches), tried
    return tuple(batches), None


def _shown(runner: ModelRunner) -> Tensor:
    """What the network is given for one image when it serves: type, place and order of memory included."""
    seen: list[Tensor] = []
    hook = runner.network.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    stated = runner.card.input
    try:
        runner.run(np.random.default_rng(0).integers(0, 256, (1, stated.channels, stated.side_px, stated.side_px), dtype=np.uint8))
    finally:
        hook.remove()
    # A copy that was not made in inference mode may be used outside of it.
    return seen[0].clone()
