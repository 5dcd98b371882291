"""The way of a batch to the device and of its answer back."""

from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

UInt8Array = npt.NDArray[np.uint8]


class Transfer(Protocol):
    """Moves narrow bytes: the device widens what arrives and narrows what leaves."""

    def to_device(self, batch: UInt8Array) -> Tensor:
        """Return the batch on the device, uint8, same axes."""
        ...

    def to_host(self, results: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the results in host memory, complete: no copy is under way any more."""
        ...


class HostTransfer:
    """The device is this CPU: nothing moves."""

    def to_device(self, batch: UInt8Array) -> Tensor:
        """Return a tensor over the same memory; a copy where the batch is read-only or not C-ordered, which torch does not take."""
        return torch.from_numpy(np.require(batch, requirements=["C", "W"]))

    def to_host(self, results: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the results as they are."""
        return results


class PinnedTransfer:
    """A CUDA device: page-locked buffers, asynchronous copies, one event that says when the answer is there.

    Written after the documentation of torch; not yet run on a CUDA device. One batch at a time: the buffers are used again.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._inputs = torch.empty(0, dtype=torch.uint8)

    def to_device(self, batch: UInt8Array) -> Tensor:
        """Copy through page-locked memory; the copy may still run when this returns, the stream keeps the order."""
        if self._inputs.numel() < batch.size:
            self._inputs = torch.empty(batch.size, dtype=torch.uint8, pin_memory=True)
        staged = self._inputs[: batch.size].view(batch.shape)
        staged.numpy()[...] = batch
        return staged.to(self._device, non_blocking=True)

    def to_host(self, results: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Copy back and wait for the event: an asynchronous copy read earlier holds old bytes."""
        arrived = tuple(torch.empty(result.shape, dtype=result.dtype, pin_memory=True) for result in results)
        for target, result in zip(arrived, results, strict=True):
            target.copy_(result, non_blocking=True)
        torch.cuda.current_stream(self._device).record_event().synchronize()
        return arrived


def transfer_for(device: torch.device) -> Transfer:
    """The way that fits the device."""
    return PinnedTransfer(device) if device.type == "cuda" else HostTransfer()
