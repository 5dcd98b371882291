"""A device that somebody shares: the shipped network on it finds room for so many images, and may lose it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from pipeline.inference import networks
from pipeline.inference.networks.lesion_unet import LesionUNet


class Device:
    """How much room there is, and what was asked of it."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.is_lost = False
        self.no_room_for: int | None = None
        """An image that is all of this value does not fit even by itself."""
        self.sizes: list[int] = []
        """Of each pass, failed ones included."""

    def hold(self, display: Tensor) -> None:
        """Raise what torch does where the batch does not fit, or where the device is gone."""
        self.sizes.append(len(display))
        if self.is_lost:
            raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
        greedy = self.no_room_for is not None and bool(((display * 255).round() == self.no_room_for).flatten(1).all(1).any())
        if len(display) > self.room or greedy:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB.")


@contextmanager
def on(device: Device) -> Iterator[None]:
    """Let the networks that are built meanwhile run on that device, for good."""

    class CrowdedUNet(LesionUNet):
        def forward(self, display: Tensor) -> tuple[Tensor, Tensor]:
            device.hold(display)
            answer: tuple[Tensor, Tensor] = super().forward(display)
            return answer

    before: Any = networks.NETWORKS
    networks.NETWORKS = {"lesion-unet": CrowdedUNet}  # type: ignore[misc]
    try:
        yield
    finally:
        networks.NETWORKS = before  # type: ignore[misc]
