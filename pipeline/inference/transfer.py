"""The way of a batch to the device and of its answer back: narrow bytes both ways, through buffers that are made once.

On a CPU the same way is gone with one ordinary buffer and nothing to wait for. The CUDA part is written after the documentation
of torch 2.13 and has not been run on a device.
"""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pipeline.inference.ring import Event, Ring

UInt8Array = npt.NDArray[np.uint8]

SLOTS: Final = 3
"""One batch runs, one is on its way, and one slot is free for whoever comes with another batch than the one foreseen."""


@dataclass(slots=True)
class Buffers:
    """One slot: where a batch is put together, and where the device sees it. On a CPU they are one."""

    host: Tensor
    """(byte,) uint8; page-locked where the device copies from it."""
    device: Tensor
    """(byte,) uint8."""


@dataclass(frozen=True, slots=True)
class Staged:
    """A batch that is on its way to the device, or there. It is to be released once, whether it ran or not."""

    shown: Tensor
    """(image, channel, row, column) uint8, on the device once `arrived` has passed."""
    buffers: Buffers
    arrived: Event | None


class Transfer(Protocol):
    """Moves narrow bytes: the device widens what arrives and narrows what leaves."""

    stages_ahead: bool
    """Whether a batch may be staged while another runs."""

    def stage(self, parts: Sequence[UInt8Array]) -> Staged:
        """Put a batch together, part after part, and send it off; may return before it has arrived."""
        ...

    def computing(self) -> AbstractContextManager[object]:
        """Where the work of a batch is queued on the device."""
        ...

    def arrived(self, staged: Staged) -> Tensor:
        """The batch, for work that is queued within `computing`: that work waits for it, the caller does not."""
        ...

    def release(self, staged: Staged) -> None:
        """Let the slot be used again after what is queued by now."""
        ...

    def to_host(self, results: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the results in host memory, complete: no copy is under way any more."""
        ...


class HostTransfer:
    """The device is this CPU: a batch is put together where it is read."""

    stages_ahead = False

    def __init__(self, capacity_bytes: int) -> None:
        buffer = torch.empty(capacity_bytes, dtype=torch.uint8)
        self._ring = Ring([Buffers(buffer, buffer)])

    def stage(self, parts: Sequence[UInt8Array]) -> Staged:
        """See `Transfer.stage`. Waits for the batch that runs: there is one buffer."""
        shape = _shape_of(parts)
        with self._ring.taking() as buffers:
            if buffers.host.numel() < math.prod(shape):
                buffers.host = buffers.device = torch.empty(math.prod(shape), dtype=torch.uint8)
            return Staged(_filled(buffers.host, parts, shape), buffers, None)

    def computing(self) -> AbstractContextManager[object]:
        """See `Transfer.computing`."""
        return nullcontext()

    def arrived(self, staged: Staged) -> Tensor:
        """See `Transfer.arrived`."""
        return staged.shown

    def release(self, staged: Staged) -> None:
        """See `Transfer.release`."""
        self._ring.give_back(staged.buffers, None)

    def to_host(self, results: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the results as they are."""
        return tuple(results)


class CudaTransfer:
    """A CUDA device: page-locked buffers, one stream that copies in and one that computes and copies out, events between them.

    The buffers of a slot live as long as the process and are used on both streams; a slot is taken again only after an event
    that follows its last use, so no block changes hands under a copy.
    """

    stages_ahead = True

    def __init__(self, device: torch.device, capacity_bytes: int) -> None:
        self._device = device
        self._copying, self.stream = (torch.cuda.Stream(device) for _ in range(2))  # type: ignore[no-untyped-call]
        self._ring = Ring([self._buffers(capacity_bytes) for _ in range(SLOTS)])

    def _buffers(self, capacity_bytes: int) -> Buffers:
        # Else the first device gets a context for the page-locking.
        with torch.cuda.device(self._device):
            host = torch.empty(capacity_bytes, dtype=torch.uint8, pin_memory=True)
        return Buffers(host, torch.empty(capacity_bytes, dtype=torch.uint8, device=self._device))

    def stage(self, parts: Sequence[UInt8Array]) -> Staged:
        """See `Transfer.stage`."""
        shape = _shape_of(parts)
        count = math.prod(shape)
        with self._ring.taking() as buffers:
            if buffers.host.numel() < count:
                # The slot's last use is over, or it could not have been taken.
                grown = self._buffers(count)
                buffers.host, buffers.device = grown.host, grown.device
            filled = _filled(buffers.host, parts, shape)
            shown = buffers.device[:count].view(shape)
            with torch.cuda.stream(self._copying):
                shown.copy_(filled, non_blocking=True)
            return Staged(shown, buffers, self._mark(self._copying))

    def computing(self) -> AbstractContextManager[object]:
        """See `Transfer.computing`."""
        return torch.cuda.stream(self.stream)

    def arrived(self, staged: Staged) -> Tensor:
        """See `Transfer.arrived`."""
        if isinstance(staged.arrived, torch.cuda.Event):
            self.stream.wait_event(staged.arrived)
        return staged.shown

    def release(self, staged: Staged) -> None:
        """See `Transfer.release`. What was staged and never ran waits for its own copy."""
        if isinstance(staged.arrived, torch.cuda.Event):
            self.stream.wait_event(staged.arrived)
        self._ring.give_back(staged.buffers, self._mark(self.stream))

    def to_host(self, results: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Copy back and wait for the event: an asynchronous copy that is read earlier holds old bytes."""
        with torch.cuda.stream(self.stream):
            targets = tuple(torch.empty(result.shape, dtype=result.dtype, pin_memory=True) for result in results)
            for target, result in zip(targets, results, strict=True):
                target.copy_(result, non_blocking=True)
        self._mark(self.stream).synchronize()
        return targets

    def _mark(self, stream: torch.cuda.Stream) -> torch.cuda.Event:
        # Blocking: whoever waits sleeps, and leaves its core to the other processes.
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        event.record(stream)
        return event


def transfer_for(device: torch.device, *, capacity_bytes: int) -> HostTransfer | CudaTransfer:
    """The way that fits the device, with room for batches of so many bytes; larger ones make room for themselves."""
    return CudaTransfer(device, capacity_bytes) if device.type == "cuda" else HostTransfer(capacity_bytes)


def _shape_of(parts: Sequence[UInt8Array]) -> tuple[int, ...]:
    return (sum(len(part) for part in parts), *parts[0].shape[1:])


def _filled(buffer: Tensor, parts: Sequence[UInt8Array], shape: tuple[int, ...]) -> Tensor:
    """Write the parts one after the other to the buffer's begin; return that as a batch."""
    batch = buffer[: math.prod(shape)].view(shape)
    np.concatenate(parts, out=batch.numpy())
    return batch
