"""What a model costs on one device: the performance card that `secondread profile` writes and an inference process reads."""

from typing import Literal

from pydantic import AwareDatetime, Field

from schemas.frozen import Frozen


class BatchCost(Frozen):
    """How a batch of one size runs: from bytes in host memory to checked answers in host memory."""

    images: int = Field(ge=1)
    run_count: int = Field(ge=1)
    """Timed runs that the figures come from."""
    median_s: float = Field(gt=0)
    p10_s: float = Field(gt=0)
    p90_s: float = Field(gt=0)
    images_per_s: float = Field(gt=0)
    """`images` / `median_s`."""
    peak_memory_bytes: int | None = Field(default=None, ge=0)
    """Most memory while it ran: of the device (CUDA: allocated by torch), or of the whole process (CPU). None: not told by this system."""


class LayerCost(Frozen):
    """One layer of the network, in a forward pass of one image."""

    name: str
    """Its place in the network, as torch names it."""
    kind: str
    """Its class."""
    median_s: float = Field(ge=0)
    share: float = Field(ge=0)
    """Of the whole forward pass."""
    flops: int | None = Field(default=None, ge=0)
    """Floating-point operations; a multiplication with an addition counts as two."""


class PerformanceCard(Frozen):
    """One model in one version on one device."""

    schema_version: Literal["1.0"] = "1.0"
    model: str
    """`name:version`"""
    weights_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    bucket: int = Field(ge=1)
    """Shape bucket: the input's side in pixels."""
    device: str
    """As it was asked for: `cpu`, `cuda:0`."""
    device_name: str
    """What the device is; cards of other devices say nothing about it."""
    threads: int = Field(ge=1)
    """Threads of one torch operation."""
    torch_version: str
    measured_at: AwareDatetime
    predicted_flops: int | None = Field(default=None, ge=0)
    """FLOPs of one image, foretold on tensors without data before the first run. None: this network cannot be run without data."""
    counted_flops: int = Field(ge=0)
    """FLOPs of one image, counted in a real run."""
    forward_s: float = Field(gt=0)
    """Median of a forward pass of one image, without the ways to the device and back: what the shares refer to."""
    layers: tuple[LayerCost, ...]
    """Most time first."""
    batches: tuple[BatchCost, ...] = Field(min_length=1)
    """By size, rising."""
    knee: int = Field(ge=1)
    """Smallest measured batch that reaches nine tenths of the most images a second: above it a batch costs more wait than it gains."""
    does_not_fit: int | None = Field(default=None, ge=1)
    """Smallest tried batch that the device's memory did not hold."""
