"""The batch matrix: how long each batch size takes, how much memory, and where a larger batch stops to pay."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from pipeline.inference.transfer import UInt8Array
from schemas.model_card import ModelCard
from schemas.performance_card import BatchCost

ENOUGH = 0.9
"""Share of the most images a second that the knee reaches."""
LEAST_RUNS, MOST_RUNS = 5, 60
SECONDS = 2.0
"""Spent on each batch size, unless fewer or more runs fill it."""
_HIGH_WATER = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


class Runner(Protocol):
    """What is measured: a loaded model as the inference process runs it."""

    @property
    def card(self) -> ModelCard:
        """What it takes."""

    @property
    def device(self) -> torch.device:
        """Where it runs."""

    def run(self, batch: UInt8Array) -> object:
        """Answer (image, channel, row, column) uint8."""


def sweep(
    runner: Runner, sizes: Sequence[int], *, seconds: float = SECONDS, tell: Callable[[int], None] = lambda images: None
) -> Iterator[BatchCost]:
    """Measure each batch size, smallest first; `tell` hears which one comes next.

    Raises
    ------
    BadOutput, OutOfDeviceMemory, ModelFailed
        As `ModelRunner.run`.
    """
    stated = runner.card.input
    rising = sorted(set(sizes))
    noise = np.random.default_rng(0).integers(0, 256, (rising[-1], stated.channels, stated.side_px, stated.side_px), dtype=np.uint8)
    for images in rising:
        tell(images)
        yield _measured(runner, noise[:images], seconds)


def _measured(runner: Runner, batch: UInt8Array, seconds: float) -> BatchCost:
    memory = _PeakMemory(runner.device)
    # The first run of a shape pays for memory and for choosing algorithms.
    runner.run(batch)
    times: list[float] = []
    until = time.perf_counter() + seconds
    while len(times) < LEAST_RUNS or (time.perf_counter() < until and len(times) < MOST_RUNS):
        begun_s = time.perf_counter()
        runner.run(batch)
        times.append(time.perf_counter() - begun_s)
    median_s, tenths = statistics.median(times), statistics.quantiles(times, n=10, method="inclusive")
    return BatchCost(
        images=len(batch),
        run_count=len(times),
        median_s=median_s,
        p10_s=tenths[0],
        p90_s=tenths[-1],
        images_per_s=len(batch) / median_s,
        peak_memory_bytes=memory.bytes(),
    )


def knee(batches: Sequence[BatchCost]) -> int:
    """The smallest batch that reaches nine tenths of the most images a second."""
    most = max(batch.images_per_s for batch in batches)
    return min(batch.images for batch in batches if batch.images_per_s >= ENOUGH * most)


class _PeakMemory:
    """Most memory since it was made: torch's own account of a CUDA device, the kernel's of a process."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._is_told = True
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            return
        try:
            # 5 sets the high-water mark back to what is held now (proc(5)).
            _HIGH_WATER.write_text("5")
        except OSError:
            self._is_told = False

    def bytes(self) -> int | None:
        if not self._is_told:
            return None
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        lines = _STATUS.read_text(encoding="ascii").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
