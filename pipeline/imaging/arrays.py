"""The arrays of this room, named once."""

from typing import Any

import numpy as np
import numpy.typing as npt

StoredImage = npt.NDArray[np.integer[Any]]
"""Stored values as the decoder hands them out: (row, column) or (row, column, sample)."""
FloatImage = npt.NDArray[np.float32]
"""(row, column), float32."""
ByteImage = npt.NDArray[np.uint8]
"""(row, column), uint8."""
MaskImage = npt.NDArray[np.bool_]
"""(row, column), bool."""
