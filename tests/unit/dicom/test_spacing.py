import struct
from collections.abc import Callable
from typing import Any

import pytest

from pipeline.dicom.instance import DecodedInstance

Compose = Callable[..., bytes]
Read = Callable[[bytes], DecodedInstance]
Sequence = Callable[[list[dict[str, Any]]], tuple[str, bytes]]


def region(**changes: Any) -> dict[str, Any]:
    """A tissue region over the whole of the 4 x 3 image: 0.02 cm down, 0.01 cm across."""
    whole = {
        "RegionSpatialFormat": struct.pack("<H", 1),
        "RegionDataType": struct.pack("<H", 1),
        "RegionLocationMinX0": struct.pack("<I", 0),
        "RegionLocationMinY0": struct.pack("<I", 0),
        "RegionLocationMaxX1": struct.pack("<I", 2),
        "RegionLocationMaxY1": struct.pack("<I", 3),
        "PhysicalUnitsXDirection": struct.pack("<H", 3),
        "PhysicalUnitsYDirection": struct.pack("<H", 3),
        "PhysicalDeltaX": struct.pack("<d", 0.01),
        "PhysicalDeltaY": struct.pack("<d", -0.02),
    }
    return whole | changes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b".002006091181818\\.002006091181818", (0.002006091181818, 0.002006091181818)),
        (b"0.70312500000000001\\0.70312500000000001", (0.703125, 0.703125)),
        (b"7.03125E-1\\7.03125e-001", (0.703125, 0.703125)),
        (b" 0.703125 \\ 0.5", (0.703125, 0.5)),
        (("UT", b"2.5000\\2.5000"), (2.5, 2.5)),
    ],
)
def test_decimal_strings_are_read_as_scanners_write_them(read: Read, compose: Compose, text: bytes, expected: tuple[float, float]) -> None:
    header = read(compose(PixelSpacing=text)).header
    assert (header.spacing_mm, header.spacing_source) == (expected, "pixel_spacing")


@pytest.mark.parametrize("text", [b"0,143\\0,143", b"0.5865432,0.1955034", b"0.7", b"0\\0", b"NaN\\NaN", b"-1\\-1", b"143000\\143000"])
def test_a_doubtful_spacing_is_warned_of_and_never_guessed(read: Read, compose: Compose, text: bytes) -> None:
    header = read(compose(PixelSpacing=text)).header
    assert header.spacing_mm is None
    assert set(header.warnings) <= {"spacing-unreadable", "spacing-unusable"}
    assert header.warnings


def test_an_ultrasound_region_gives_millimetres_between_rows_first(read: Read, compose: Compose, sequence: Sequence) -> None:
    header = read(compose(SequenceOfUltrasoundRegions=sequence([region()]))).header
    assert header.spacing_mm == pytest.approx((0.2, 0.1))
    assert header.spacing_source == "ultrasound_region"


@pytest.mark.parametrize(
    "changes",
    [
        {"PhysicalUnitsXDirection": struct.pack("<H", 4)},  # seconds: M-mode
        {"RegionDataType": struct.pack("<H", 3)},  # a Doppler spectrum
    ],
)
def test_a_region_without_tissue_in_centimetres_gives_no_scale(
    read: Read, compose: Compose, sequence: Sequence, changes: dict[str, bytes]
) -> None:
    header = read(compose(SequenceOfUltrasoundRegions=sequence([region(**changes)]))).header
    assert header.spacing_mm is None
    assert header.warnings == ()


@pytest.mark.parametrize(
    "regions",
    [
        [region(), region(PhysicalDeltaX=struct.pack("<d", 0.03))],
        [region(RegionLocationMaxX1=struct.pack("<I", 0))],
    ],
    ids=["two scales", "a small inset"],
)
def test_regions_that_do_not_speak_for_the_image_give_no_scale(
    read: Read, compose: Compose, sequence: Sequence, regions: list[dict[str, Any]]
) -> None:
    header = read(compose(SequenceOfUltrasoundRegions=sequence(regions))).header
    assert header.spacing_mm is None
    assert header.warnings == ("ultrasound-regions-ambiguous",)


def test_the_spacing_at_the_detector_is_marked_as_such(read: Read, compose: Compose) -> None:
    header = read(compose(ImagerPixelSpacing=b"0.2\\0.2")).header
    assert (header.spacing_mm, header.spacing_source) == ((0.2, 0.2), "imager_pixel_spacing")


def test_the_same_number_at_the_detector_and_in_the_patient_counts_as_uncalibrated(read: Read, compose: Compose) -> None:
    header = read(compose(ImagerPixelSpacing=b"0.2\\0.2", PixelSpacing=b"0.2\\0.2")).header
    assert header.spacing_source == "imager_pixel_spacing"


def test_a_bare_aspect_ratio_gives_no_millimetres(read: Read, compose: Compose) -> None:
    header = read(compose(PixelAspectRatio=b"4\\1")).header
    assert header.spacing_mm is None
    assert header.warnings == ("aspect-without-spacing",)
