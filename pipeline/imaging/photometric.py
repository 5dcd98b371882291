"""From stored values to what a reader would see: rescale, window, one inversion, grey from colour."""

from typing import Final

import numpy as np

from pipeline.imaging.arrays import ByteImage, FloatImage, MaskImage, StoredImage
from pipeline.imaging.rescale import to_modality
from pipeline.imaging.window import Fallback, full_range_window, percentile_window, window_linear
from schemas.instance import InstanceHeader

LUMA_WEIGHTS: Final = (0.299, 0.587, 0.114)
"""Red, green and blue in the luminance of ITU-R BT.601, which also defines YBR_FULL (PS3.3 C.7.6.3.1.2)."""
BLACK_IS_HIGHEST: Final = "MONOCHROME1"


def luminance(colour: StoredImage) -> FloatImage:
    """Grey of a colour image.

    Parameters
    ----------
    colour
        (row, column, sample), samples R, G, B, any integer type.

    Returns
    -------
    (row, column), float32, in the range of `colour`. Exact where the three samples are equal.
    """
    samples = colour.astype(np.float64)
    red, blue = samples[..., 0] - samples[..., 1], samples[..., 2] - samples[..., 1]
    # Differences to green, not a plain weighted sum: the rounding of the weights leaves grey pixels alone.
    return (samples[..., 1] + LUMA_WEIGHTS[0] * red + LUMA_WEIGHTS[2] * blue).astype(np.float32)


def display_values(stored: StoredImage, header: InstanceHeader, *, fallback: Fallback = "header") -> FloatImage:
    """Make display values of one frame: rescale, window, then at most one inversion.

    Parameters
    ----------
    stored
        (row, column), or (row, column, sample) with samples R, G, B: one frame as the decoder hands it out.
    header
        The instance's header.
    fallback
        What to do where the header states no window. `header` and `full_range` take the range of the stored bits;
        `percentile` takes the values' own range.

    Returns
    -------
    (row, column), float32, 0.0 black to 1.0 white.

    References
    ----------
    DICOM PS3.3 C.7.6.3.1.2. INVERSE in Presentation LUT Shape (2050,0020) repeats what MONOCHROME1 says, so it
    causes no second inversion.
    """
    if stored.ndim == 3:
        return _full_range(luminance(stored), header)
    values = to_modality(stored, slope=header.slope, intercept=header.intercept)
    display = _windowed(stored, values, header, fallback)
    # Inverted last: the window is stated on modality values.
    return 1 - display if header.photometric_interpretation == BLACK_IS_HIGHEST else display


def to_display_u8(stored: StoredImage, header: InstanceHeader, *, fallback: Fallback = "header") -> ByteImage:
    """Display values as the model takes them: 0 black to 255 white.

    8-bit images whose window changes nothing come out as they are stored, bit for bit, which is how an ultrasound
    device means them and how the model has seen them.

    Parameters
    ----------
    stored, header, fallback
        As in `display_values`.

    Returns
    -------
    (row, column), uint8, C-ordered; `stored` itself where nothing changes.
    """
    if is_display_already(stored, header, fallback=fallback):
        return np.ascontiguousarray(stored, dtype=np.uint8)
    return np.rint(display_values(stored, header, fallback=fallback) * 255).astype(np.uint8)


def is_display_already(stored: StoredImage, header: InstanceHeader, *, fallback: Fallback = "header") -> bool:
    """Whether the stored bytes are the display values: 8-bit grey, no rescale, no window or the whole range as one."""
    is_plain = stored.dtype == np.uint8 and stored.ndim == 2 and header.bits_stored == 8
    is_unscaled = header.slope == 1 and header.intercept == 0 and header.photometric_interpretation == "MONOCHROME2"
    return is_plain and is_unscaled and _window_is_whole_range(header, fallback)


def _window_is_whole_range(header: InstanceHeader, fallback: Fallback) -> bool:
    if header.window_center is None or header.window_width is None:
        return fallback != "percentile"
    # 128 and 256 are the LINEAR window of 0 to 255; writers also state 127 or 127.5, and 255.
    return header.window_width in (255, 256) and 127 <= header.window_center <= 128


def _windowed(stored: StoredImage, values: FloatImage, header: InstanceHeader, fallback: Fallback) -> FloatImage:
    if header.window_center is not None and header.window_width is not None:
        return window_linear(values, center=header.window_center, width=header.window_width)
    if fallback == "percentile":
        return percentile_window(values, valid=_without_padding(stored, header))
    return _full_range(values, header)


def _full_range(values: FloatImage, header: InstanceHeader) -> FloatImage:
    is_colour = header.samples_per_pixel > 1 or header.photometric_interpretation == "PALETTE COLOR"
    slope, intercept = (1.0, 0.0) if is_colour else (header.slope, header.intercept)
    return full_range_window(
        values, bits_stored=header.bits_stored, is_signed=header.is_signed and not is_colour, slope=slope, intercept=intercept
    )


def _without_padding(stored: StoredImage, header: InstanceHeader) -> MaskImage | None:
    return None if header.padding_value is None else stored != header.padding_value
