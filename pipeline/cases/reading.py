"""What was read in a case, before it is worded: the hand-over from postprocess to report."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from schemas.report import Box, ImageStatus, Measurement, ResultKind
from schemas.work import InferredCase, PreparedCase, PreparedImage, PreparedInstance


@dataclass(frozen=True, slots=True)
class MeasuredRegion:
    """One outlined region with its sizes, on the source image."""

    box: Box
    centroid_px: tuple[float, float]
    """(row, column)"""
    measurements: tuple[Measurement, ...]
    probability: float
    """Mean of the probability map inside the outline."""


@dataclass(frozen=True, slots=True)
class ReadImage:
    """One frame of one instance, and what became of it."""

    image: PreparedImage
    instance: PreparedInstance
    status: ImageStatus
    reason: str | None = None
    """A code, where the image was not read."""
    scores: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """By their names in the model card."""
    is_suspicious: bool = False
    """The malignancy score reaches the card's threshold."""
    regions: tuple[MeasuredRegion, ...] = ()
    """Largest first. Findings where the status says so; otherwise outlined below the presence threshold."""
    artefacts: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))
    """PNG bytes by file name: `overlay.png`, `probability.png`."""

    @property
    def is_read(self) -> bool:
        """The model has answered for this image. Every other status leaves the case incomplete."""
        return self.status in ("findings", "nothing_found")


@dataclass(frozen=True, slots=True)
class CaseReading:
    """Everything that the report of a case is made of."""

    prepared: PreparedCase
    inferred: InferredCase | None
    """None where no image was ready for the model."""
    images: tuple[ReadImage, ...]
    """In the order of the case's instances and their frames; every instance is there."""


@dataclass(frozen=True, slots=True)
class Revision:
    """Which version of a case's result is written, when and by what."""

    version: int
    kind: ResultKind
    at: datetime
    product_version: str
