"""The stored values, exact: native bytes read in place, compressed frames through the one codec of their syntax."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from pydicom.encaps import encapsulate
from pydicom.pixels.decoders.base import get_decoder
from pydicom.pixels.processing import apply_color_lut
from pydicom.uid import UID

from pipeline.dicom.errors import BadValue, CorruptPixels, NoPixelData, TruncatedPixels
from pipeline.dicom.instance import StoredArray
from pipeline.dicom.reading.encapsulated import check_frame, split_frames
from pipeline.dicom.reading.file import PIXEL_DATA, UNDEFINED_LENGTH, OpenedFile, PixelElement
from pipeline.dicom.reading.layout import PixelLayout
from pipeline.dicom.reading.optional import Warnings
from pipeline.dicom.reading.verdict import foreign_errors_as

_IN_PLACE: Final = ("MONOCHROME1", "MONOCHROME2", "PALETTE COLOR", "RGB")
_PALETTES: Final = tuple(f"{colour}PaletteColorLookupTableData" for colour in ("Red", "Green", "Blue"))


@dataclass(frozen=True, slots=True)
class PixelSource:
    """Pixels that are all there, still encoded."""

    opened: OpenedFile
    layout: PixelLayout
    vr: str | None
    native: memoryview
    """Uncompressed bytes, with the padding byte of an odd length; empty where compressed."""
    frames: tuple[bytes, ...]
    """One codestream a frame; empty where uncompressed."""


def find_pixels(opened: OpenedFile) -> PixelElement:
    """The pixel element of an image.

    Raises
    ------
    NoPixelData
        Absent, empty, or floating point pixels, which we do not read.
    """
    pixels = opened.pixels
    if pixels is None or pixels.length == 0 or pixels.tag != PIXEL_DATA:
        raise NoPixelData
    return pixels


def inspect_pixels(opened: OpenedFile, layout: PixelLayout, *, warnings: Warnings) -> PixelSource:
    """Compare what is there with what the header declares, before memory is taken for it.

    Raises
    ------
    NoPixelData, TruncatedPixels, CorruptPixels, UnsupportedCodec, BadValue
    """
    pixels = find_pixels(opened)
    present = memoryview(opened.content)[pixels.offset :]
    if not opened.syntax.is_encapsulated:
        return PixelSource(opened, layout, pixels.vr, _native_bytes(pixels, present, layout, warnings), ())
    if pixels.length != UNDEFINED_LENGTH:
        raise CorruptPixels("the transfer syntax is a compressed one, Pixel Data is not")
    frames = split_frames(present, frame_count=layout.frame_count, codestream=opened.syntax.codestream)
    for frame in frames:
        check_frame(frame, layout, opened.syntax.codestream)
    return PixelSource(opened, layout, "OB", memoryview(b""), tuple(frames))


def decode_pixels(source: PixelSource) -> StoredArray:
    """Read the stored values of all frames.

    Returns
    -------
    (frame, row, column), or (frame, row, column, sample) with samples R, G, B: native byte order, the narrowest
    type that holds Bits Stored. May be a read-only view of the file.

    Raises
    ------
    CorruptPixels, BadValue, TooLarge
    """
    stored = _compressed(source) if source.frames else _native(source)
    return _expand_palette(source.opened, stored) if source.layout.photometric == "PALETTE COLOR" else _narrowed(stored, source.layout)


def _native_bytes(pixels: PixelElement, present: memoryview, layout: PixelLayout, warnings: Warnings) -> memoryview:
    if pixels.length != UNDEFINED_LENGTH and pixels.length <= len(present):
        present = present[: pixels.length]
    else:
        warnings.add("pixel-length-wrong")
    if len(present) < layout.native_bytes:
        raise TruncatedPixels(declared_bytes=layout.native_bytes, present_bytes=len(present))
    padded_bytes = layout.native_bytes + layout.native_bytes % 2
    if len(present) > padded_bytes:
        warnings.add("pixel-bytes-excess")
    return present[:padded_bytes]


def _native(source: PixelSource) -> StoredArray:
    layout, syntax = source.layout, source.opened.syntax
    is_byte_swapped = not syntax.is_little_endian and layout.bits_allocated == 8 and source.vr == "OW"
    if layout.photometric not in _IN_PLACE or layout.is_planar or layout.bits_allocated == 1 or is_byte_swapped:
        return _through_pydicom(source, bytes(source.native), frame_count=layout.frame_count)
    order = "<" if syntax.is_little_endian else ">"
    dtype = np.dtype(f"{order}{'i' if layout.is_signed else 'u'}{layout.bits_allocated // 8}")
    stored: StoredArray = np.frombuffer(source.native[: layout.native_bytes], dtype=dtype).reshape(layout.shape)
    return _without_unused_bits(stored.astype(dtype.newbyteorder("="), copy=False), layout)


def _compressed(source: PixelSource) -> StoredArray:
    first = _decode_frame(source, source.frames[0])
    if len(source.frames) == 1:
        return first[np.newaxis]
    stored = np.empty((len(source.frames), *first.shape), first.dtype)
    stored[0] = first
    for index, frame in enumerate(source.frames[1:], start=1):
        stored[index] = _decode_frame(source, frame)
    return stored


def _decode_frame(source: PixelSource, frame: bytes) -> StoredArray:
    if not frame:
        raise CorruptPixels("a frame is empty")
    stored = _through_pydicom(source, encapsulate([frame], has_bot=False), frame_count=1)[0]
    return _without_unused_bits(stored, source.layout) if source.opened.syntax.codestream == "rle" else stored


def _through_pydicom(source: PixelSource, value: bytes, *, frame_count: int) -> StoredArray:
    """Decode with the codec of our table; YBR becomes RGB, planes become samples."""
    syntax, layout = source.opened.syntax, source.layout
    with foreign_errors_as(CorruptPixels, "the codec refused Pixel Data"):
        stored, _ = get_decoder(UID(syntax.uid)).as_array(
            value, decoding_plugin=syntax.codec if syntax.is_encapsulated else "", **_options(source, frame_count)
        )
    shape = (frame_count, *layout.shape[1:])
    return np.ascontiguousarray(stored.reshape(shape), dtype=stored.dtype.newbyteorder("="))


def _options(source: PixelSource, frame_count: int) -> dict[str, Any]:
    """The Image Pixel module in the words of pydicom's decoders."""
    layout = source.layout
    return {
        "rows": layout.rows_px,
        "columns": layout.columns_px,
        "number_of_frames": frame_count,
        "samples_per_pixel": layout.sample_count,
        "photometric_interpretation": layout.photometric,
        "planar_configuration": int(layout.is_planar),
        "bits_allocated": layout.bits_allocated,
        "bits_stored": layout.bits_stored,
        "pixel_representation": int(layout.is_signed),
        "pixel_keyword": "PixelData",
        "pixel_vr": source.vr or "OW",
    }


def _without_unused_bits(stored: StoredArray, layout: PixelLayout) -> StoredArray:
    """Keep Bits Stored below High Bit and extend the sign; the bits above may hold an old overlay (PS3.5 8.1.1)."""
    above = layout.bits_allocated - 1 - layout.high_bit
    unused = layout.bits_allocated - layout.bits_stored
    return (stored << above) >> unused if unused else stored


def _narrowed(stored: StoredArray, layout: PixelLayout) -> StoredArray:
    """The narrowest type for Bits Stored; a codec's values beyond those keep the wider one."""
    size = next(size for size in (8, 16, 32) if layout.bits_stored <= size)
    narrow = np.dtype(f"{stored.dtype.kind}{size // 8}")
    if narrow.itemsize >= stored.dtype.itemsize:
        return stored
    limits = np.iinfo(narrow)
    return stored.astype(narrow) if limits.min <= stored.min() and stored.max() <= limits.max else stored


def _expand_palette(opened: OpenedFile, indices: StoredArray) -> StoredArray:
    """(frame, row, column) palette indices to (frame, row, column, sample) RGB (PS3.3 C.7.6.3.1.5)."""
    dataset = opened.elements.dataset
    with foreign_errors_as(BadValue, "the palette cannot be applied"):
        if not opened.syntax.is_little_endian:
            for keyword in _PALETTES:
                if keyword in dataset:  # 16-bit words, which pydicom hands out in the file's order
                    dataset[keyword].value = np.frombuffer(dataset[keyword].value, ">u2").astype("<u2").tobytes()
        colours = apply_color_lut(indices, dataset)
    return np.ascontiguousarray(colours[..., :3])
