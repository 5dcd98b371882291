"""What the decoder hands out and the limits it works under."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from schemas.instance import InstanceHeader

StoredArray = npt.NDArray[np.integer[Any]]
"""Stored values, any of uint8, int8, uint16, int16, uint32, int32."""

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class DecodedInstance:
    """One instance, decoded whole."""

    header: InstanceHeader
    stored: StoredArray
    """(frame, row, column), or (frame, row, column, sample) with samples R, G, B; native byte order, C-ordered."""


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """How much one decode child may take."""

    pixel_budget_bytes: int = 512 * MIB
    """Largest decoded image, all frames."""
    inflate_budget_bytes: int = 128 * MIB
    """Largest data set of the deflated transfer syntax, once inflated. Bounds what a small file can cost."""
    memory_bytes: int = 1536 * MIB
    """Address space of a child (RLIMIT_AS)."""
    retire_bytes: int = 256 * MIB
    """A child whose memory once peaked above this is replaced after its answer: heaps do not shrink."""
