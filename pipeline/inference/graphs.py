"""Batch shapes that are fixed: on a CUDA device each is recorded once and replayed, and smaller batches are padded up to it.

The CUDA part is written after the documentation of torch 2.13 and has not been run on a device.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import structlog
import torch
from torch import Tensor

from pipeline.inference.forward import Answers

Compute = Callable[[Tensor], Answers]

log = structlog.get_logger(__name__)


def padded_size(images: int, sizes: Iterable[int]) -> int | None:
    """The smallest of the sizes that holds so many images; None where none does."""
    return min((size for size in sizes if size >= images), default=None)


class Program(Protocol):
    """How a device runs a batch."""

    def prepare(self, shown: Tensor) -> None:
        """Get ready for batches of this shape; what it holds does not matter."""
        ...

    def __call__(self, shown: Tensor) -> Answers:
        """Answer a batch. The answers may lie in memory that the next batch is answered in."""
        ...


class Eager:
    """A CPU: each batch as it comes, nothing is padded."""

    def __init__(self, compute: Compute) -> None:
        self._compute = compute

    def prepare(self, shown: Tensor) -> None:
        """Nothing is to be made ready."""

    def __call__(self, shown: Tensor) -> Answers:
        """See `Program`."""
        return self._compute(shown)


@dataclass(frozen=True, slots=True)
class _Recorded:
    graph: "torch.cuda.CUDAGraph"
    shown: Tensor
    answers: Answers


class Graphed:
    """A CUDA device: one graph for each prepared size, all from one memory pool.

    The graphs share the pool because they never run side by side and the answers of one are read before the next is
    replayed; a replay overwrites what another has left. Sizes above the largest prepared one, and those whose recording
    failed, run as they come.
    """

    def __init__(self, compute: Compute, device: torch.device, stream: "torch.cuda.Stream") -> None:
        self._compute, self._device, self._stream = compute, device, stream
        self._pool = torch.cuda.graph_pool_handle()
        self._recorded: dict[int, _Recorded] = {}

    def prepare(self, shown: Tensor) -> None:
        """Run once as it comes, so that libraries choose their kernels and constants reach the device; then record."""
        own = shown.clone()
        self._compute(own)
        self._stream.synchronize()
        try:
            graph = torch.cuda.CUDAGraph()
            # Other models of the process may be at work in other threads meanwhile.
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                answers = self._compute(own)
        except RuntimeError as error:
            log.warning("graph_not_recorded", images=len(own), kind=type(error).__name__)
            # A recording may fail by itself; a device that is lost says so here.
            torch.cuda.synchronize(self._device)
            return
        self._recorded[len(own)] = _Recorded(graph, own, answers)

    def __call__(self, shown: Tensor) -> Answers:
        """See `Program`. Padding rows are black."""
        images = len(shown)
        size = padded_size(images, self._recorded)
        if size is None:
            return self._compute(shown)
        recorded = self._recorded[size]
        recorded.shown[:images].copy_(shown)
        recorded.shown[images:].zero_()
        recorded.graph.replay()
        return Answers(*(part[:images] for part in recorded.answers))
