"""A small DICOM writer of its own, so that tests can write what no library would."""

import struct
from collections.abc import Callable
from typing import Any

import pytest
from pydicom.datadict import dictionary_VR, tag_for_keyword

from pipeline.dicom.instance import DecodedInstance, DecodeLimits
from pipeline.dicom.reading.instance import read_instance

LONG_VRS = ("OB", "OW", "SQ", "UN", "UT", "OF")
EXPLICIT = "1.2.840.10008.1.2.1"
ROWS, COLUMNS = 4, 3
PIXELS = bytes(range(ROWS * COLUMNS))

Compose = Callable[..., bytes]


def us(value: int) -> bytes:
    return struct.pack("<H", value)


def element(keyword: str, value: bytes | tuple[str, bytes], *, length: int | None = None) -> bytes:
    tag = tag_for_keyword(keyword)
    assert tag is not None
    vr, content = value if isinstance(value, tuple) else (dictionary_VR(tag).split(" ")[0], value)
    if len(content) % 2:
        content += b" " if vr not in ("OB", "OW", "UI") else b"\0"
    stated = len(content) if length is None else length
    head = struct.pack("<HH", tag >> 16, tag & 0xFFFF) + vr.encode()
    head += struct.pack("<HI", 0, stated) if vr in LONG_VRS else struct.pack("<H", stated)
    return head + content


DEFAULTS: dict[str, Any] = {
    "ImageType": b"ORIGINAL\\PRIMARY",
    "SOPClassUID": b"1.2.840.10008.5.1.4.1.1.6.1",
    "SOPInstanceUID": b"2.25.1",
    "Modality": b"US",
    "PatientID": b"ZZ-1",
    "BodyPartExamined": b"breast",
    "StudyInstanceUID": b"2.25.2",
    "SeriesInstanceUID": b"2.25.3",
    "SamplesPerPixel": us(1),
    "PhotometricInterpretation": b"MONOCHROME2",
    "Rows": us(ROWS),
    "Columns": us(COLUMNS),
    "BitsAllocated": us(8),
    "BitsStored": us(8),
    "HighBit": us(7),
    "PixelRepresentation": us(0),
    "PixelData": ("OB", PIXELS),
}


@pytest.fixture
def compose() -> Compose:
    """Write a small valid image; keyword arguments change, add (bytes, or VR and bytes) or leave out (None) attributes."""

    def write(*, syntax: str = EXPLICIT, pixel_length: int | None = None, **changes: Any) -> bytes:
        attributes = {keyword: value for keyword, value in {**DEFAULTS, **changes}.items() if value is not None}
        by_tag = sorted(attributes.items(), key=lambda item: tag_for_keyword(item[0]) or 0)
        body = b"".join(element(keyword, value, length=pixel_length if keyword == "PixelData" else None) for keyword, value in by_tag)
        return b"\0" * 128 + b"DICM" + element("TransferSyntaxUID", syntax.encode()) + body

    return write


@pytest.fixture
def sequence() -> Callable[[list[dict[str, Any]]], tuple[str, bytes]]:
    """The value of a sequence with items of these attributes."""

    def write(items: list[dict[str, Any]]) -> tuple[str, bytes]:
        content = b""
        for item in items:
            by_tag = sorted(item.items(), key=lambda pair: tag_for_keyword(pair[0]) or 0)
            body = b"".join(element(keyword, value) for keyword, value in by_tag)
            content += b"\xfe\xff\x00\xe0" + struct.pack("<I", len(body)) + body
        return "SQ", content

    return write


@pytest.fixture
def read() -> Callable[[bytes], DecodedInstance]:
    """Read with the limits of an installation that nobody has changed."""
    return lambda data: read_instance(data, limits=DecodeLimits())
