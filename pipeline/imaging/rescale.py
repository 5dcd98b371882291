"""From stored values to modality values."""

import numpy as np

from pipeline.imaging.arrays import FloatImage, StoredImage


def to_modality(stored: StoredImage, *, slope: float, intercept: float) -> FloatImage:
    """Apply the linear modality rescale.

    Parameters
    ----------
    stored
        Any shape and integer type.
    slope, intercept
        Rescale Slope (0028,1053) and Rescale Intercept (0028,1052).

    Returns
    -------
    Same shape, float32, modality units (HU for CT), in a new array. Computed in double precision, so that 32-bit
    stored values do not lose digits before the rescale.

    References
    ----------
    DICOM PS3.3 C.11.1.1.2.
    """
    return (stored * np.float64(slope) + intercept).astype(np.float32)
