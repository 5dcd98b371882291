import struct
from collections.abc import Callable

import pytest

from pipeline.dicom.errors import BadDimensions, BadValue, MissingTag, TooLarge
from pipeline.dicom.instance import DecodedInstance

Compose = Callable[..., bytes]
Read = Callable[[bytes], DecodedInstance]


def us(value: int) -> bytes:
    return struct.pack("<H", value)


@pytest.mark.parametrize(
    "keyword", ["Rows", "Columns", "BitsAllocated", "BitsStored", "PixelRepresentation", "SamplesPerPixel", "PhotometricInterpretation"]
)
def test_what_shapes_the_pixels_must_be_there(read: Read, compose: Compose, keyword: str) -> None:
    with pytest.raises(MissingTag) as refusal:
        read(compose(**{keyword: None}))
    assert refusal.value.facts["name"] == keyword


@pytest.mark.parametrize("keyword", ["Rows", "Columns"])
def test_an_image_without_area_is_refused(read: Read, compose: Compose, keyword: str) -> None:
    with pytest.raises(BadDimensions):
        read(compose(**{keyword: us(0)}))


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("BitsAllocated", us(12)),
        ("BitsStored", us(24)),
        ("HighBit", us(3)),
        ("PixelRepresentation", us(7)),
        ("SamplesPerPixel", us(3)),
        ("PhotometricInterpretation", b"HSV"),
        ("NumberOfFrames", b"0"),
        ("NumberOfFrames", b"1A"),
        ("NumberOfFrames", b"-3"),
        ("Rows", ("LO", b"64")),
        ("Rows", ("SS", struct.pack("<h", -4))),
        ("Rows", ("UL", struct.pack("<I", 4))),
    ],
)
def test_values_that_contradict_the_standard_are_refused_by_name(read: Read, compose: Compose, keyword: str, value: bytes) -> None:
    with pytest.raises(BadValue) as refusal:
        read(compose(**{keyword: value}))
    assert refusal.value.facts["name"] == keyword


@pytest.mark.parametrize("changes", [{"Rows": us(65535), "Columns": us(65535)}, {"NumberOfFrames": b"2147483647"}])
def test_a_declared_size_beyond_the_budget_is_refused_before_memory_is_taken(
    read: Read, compose: Compose, changes: dict[str, bytes]
) -> None:
    with pytest.raises(TooLarge) as refusal:
        read(compose(**changes))
    assert refusal.value.facts["limit_bytes"] == 512 * 1024 * 1024
