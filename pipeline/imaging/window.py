"""From modality values to display values: the window of the header, or one made from the values."""

from typing import Final, Literal

import numpy as np

from pipeline.errors import RejectedInput
from pipeline.imaging.arrays import FloatImage, MaskImage

Fallback = Literal["header", "full_range", "percentile"]
"""What a model card asks for where the header states no window; `header` alone means the stored range."""

LOW_PERCENTILE: Final = 0.5
HIGH_PERCENTILE: Final = 99.5
"""Half a percent at either end: enough for markers and dead pixels, too little for anatomy."""


class BadWindow(RejectedInput):
    """A VOI window that the standard does not allow."""

    code = "bad-window"
    title = "The window of the image cannot be used"


def window_linear(values: FloatImage, *, center: float, width: float) -> FloatImage:
    """Map modality values to display values with the LINEAR VOI function.

    Parameters
    ----------
    values
        Any shape, float32, modality units: already rescaled.
    center, width
        Window Center (0028,1050) and Window Width (0028,1051), in the units of `values`.

    Returns
    -------
    Same shape, float32, 0.0 the lower end to 1.0 the upper end, in a new array.

    Raises
    ------
    BadWindow
        `width` is below 1.

    References
    ----------
    DICOM PS3.3 C.11.2.1.2.1; the half and the one in the formula are the standard's.
    """
    if width < 1:
        raise BadWindow("LINEAR needs a width of 1 or more", width=width)
    if width == 1:  # no ramp is left: a step at center - 0.5
        return (values > center - 0.5).astype(np.float32)
    ramp = (values.astype(np.float64) - (center - 0.5)) / (width - 1) + 0.5
    return np.clip(ramp, 0.0, 1.0).astype(np.float32)


def window_between(values: FloatImage, *, low: float, high: float) -> FloatImage:
    """Map `low` to 0 and `high` to 1, in a straight line, clipped; a range without extent maps to 0.

    Returns
    -------
    Same shape, float32, 0.0 to 1.0, in a new array.
    """
    if not high > low:
        return np.zeros_like(values, dtype=np.float32)
    ramp = (values.astype(np.float64) - low) / (float(high) - float(low))
    return np.clip(ramp, 0.0, 1.0).astype(np.float32)


def percentile_window(values: FloatImage, *, valid: MaskImage | None = None) -> FloatImage:
    """Map the 0.5th to the 99.5th percentile of the values to 0 to 1.

    Parameters
    ----------
    values
        Any shape, float32, modality units.
    valid
        Same shape, False where a pixel is padding and must not count; None where all count.

    Returns
    -------
    Same shape, float32, 0.0 to 1.0, in a new array.
    """
    counted = values if valid is None else values[valid]
    if counted.size == 0:
        return np.zeros_like(values, dtype=np.float32)
    low, high = np.percentile(counted, (LOW_PERCENTILE, HIGH_PERCENTILE))
    return window_between(values, low=float(low), high=float(high))


def full_range_window(values: FloatImage, *, bits_stored: int, is_signed: bool, slope: float, intercept: float) -> FloatImage:
    """Map the whole range that the stored values could take to 0 to 1.

    Returns
    -------
    Same shape, float32, 0.0 to 1.0, in a new array. A negative slope keeps the direction of the modality values.
    """
    lowest = -(2 ** (bits_stored - 1)) if is_signed else 0
    ends = (lowest * slope + intercept, (lowest + 2**bits_stored - 1) * slope + intercept)
    return window_between(values, low=min(ends), high=max(ends))
