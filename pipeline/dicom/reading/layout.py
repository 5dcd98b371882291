"""The Image Pixel module: what the pixels must be, checked before a byte is allocated."""

from dataclasses import dataclass
from math import prod
from typing import Final

from pipeline.dicom.errors import BadDimensions, TooLarge
from pipeline.dicom.reading.elements import Elements, bad_value, missing, required_integer

SAMPLES_OF: Final = {
    "MONOCHROME1": 1,
    "MONOCHROME2": 1,
    "PALETTE COLOR": 1,
    "RGB": 3,
    "YBR_FULL": 3,
    "YBR_FULL_422": 3,
    "YBR_RCT": 3,
    "YBR_ICT": 3,
}
"""Samples per Pixel of each photometric interpretation that we read (PS3.3 C.7.6.3.1.2)."""
_BITS_ALLOCATED: Final = (1, 8, 16, 32)


@dataclass(frozen=True, slots=True)
class PixelLayout:
    """The shape and the bits of the stored values, as the header declares them."""

    frame_count: int
    rows_px: int
    columns_px: int
    sample_count: int
    photometric: str
    bits_allocated: int
    bits_stored: int
    high_bit: int
    is_signed: bool
    is_planar: bool
    """Plane by plane, Planar Configuration (0028,0006) = 1."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(frame, row, column), or (frame, row, column, sample) of colour."""
        grey = (self.frame_count, self.rows_px, self.columns_px)
        return grey if self.sample_count == 1 else (*grey, self.sample_count)

    @property
    def native_bytes(self) -> int:
        """What uncompressed pixels take in the file, without padding."""
        if self.photometric == "YBR_FULL_422":  # two luminances share one pair of colour differences
            return prod(self.shape) * 2 // 3 * self.bits_allocated // 8
        return (prod(self.shape) * self.bits_allocated + 7) // 8

    @property
    def decoded_bytes(self) -> int:
        """What the decoded values take at most, palettes expanded."""
        sample_count = 3 if self.photometric == "PALETTE COLOR" else self.sample_count
        sample_bytes = 2 if self.photometric == "PALETTE COLOR" else max(8, self.bits_allocated) // 8
        return self.frame_count * self.rows_px * self.columns_px * sample_count * sample_bytes


def read_layout(elements: Elements, *, pixel_budget_bytes: int) -> PixelLayout:
    """Read and check the attributes that shape the pixels.

    Raises
    ------
    MissingTag, BadValue, BadDimensions
        The pixels cannot be told from these attributes.
    TooLarge
        The decoded values would exceed the budget.
    """
    sample_count = required_integer(elements, "SamplesPerPixel")
    photometric = elements.code("PhotometricInterpretation")
    if photometric is None:
        raise missing("PhotometricInterpretation")
    if SAMPLES_OF.get(photometric) != sample_count:
        keyword = "SamplesPerPixel" if photometric in SAMPLES_OF else "PhotometricInterpretation"
        raise bad_value(keyword, "does not name an image that can be read", sample_count=sample_count)
    bits_allocated, bits_stored, high_bit = _bits(elements)
    layout = PixelLayout(
        frame_count=_frame_count(elements),
        rows_px=required_integer(elements, "Rows"),
        columns_px=required_integer(elements, "Columns"),
        sample_count=sample_count,
        photometric=photometric,
        bits_allocated=bits_allocated,
        bits_stored=bits_stored,
        high_bit=high_bit,
        is_signed=_is_signed(elements),
        is_planar=sample_count > 1 and elements.integer("PlanarConfiguration") == 1,
    )
    _check_size(layout, pixel_budget_bytes)
    return layout


def _check_size(layout: PixelLayout, pixel_budget_bytes: int) -> None:
    if not layout.rows_px or not layout.columns_px:
        raise BadDimensions(rows_px=layout.rows_px, columns_px=layout.columns_px)
    if layout.decoded_bytes > pixel_budget_bytes:
        raise TooLarge(
            "the declared image is beyond the limit",
            limit="pixel_budget_bytes",
            limit_bytes=pixel_budget_bytes,
            declared_bytes=layout.decoded_bytes,
        )


def _frame_count(elements: Elements) -> int:
    count = elements.integer("NumberOfFrames")
    if count is None:
        return 1
    if count < 1:
        raise bad_value("NumberOfFrames", "is below 1")
    return count


def _is_signed(elements: Elements) -> bool:
    value = required_integer(elements, "PixelRepresentation")
    if value not in (0, 1):
        raise bad_value("PixelRepresentation", "is neither 0 nor 1")
    return value == 1


def _bits(elements: Elements) -> tuple[int, int, int]:
    allocated = required_integer(elements, "BitsAllocated")
    stored = required_integer(elements, "BitsStored")
    high = elements.integer("HighBit")
    if allocated not in _BITS_ALLOCATED:
        raise bad_value("BitsAllocated", "is not 1, 8, 16 or 32", bits_allocated=allocated)
    if not 1 <= stored <= allocated:
        raise bad_value("BitsStored", "does not fit into Bits Allocated", bits_allocated=allocated, bits_stored=stored)
    if high is None:
        high = stored - 1
    if not stored - 1 <= high < allocated:
        raise bad_value("HighBit", "does not fit Bits Stored", bits_stored=stored, high_bit=high)
    return allocated, stored, high
