import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from pydicom.dataset import Dataset
from pydicom.pixels.processing import apply_color_lut

from pipeline.dicom.errors import NoPixelData, TruncatedPixels
from pipeline.dicom.instance import DecodedInstance

Compose = Callable[..., bytes]
Read = Callable[[bytes], DecodedInstance]

CARD = np.zeros((4, 4, 3), np.uint8)
CARD[:2, :2], CARD[:2, 2:], CARD[2:, :2], CARD[2:, 2:] = (200, 30, 30), (30, 180, 30), (30, 30, 220), (128, 128, 128)


def us(value: int) -> bytes:
    return struct.pack("<H", value)


def grey(values: npt.NDArray[Any], *, stored: int, is_signed: int = 0, high: int | None = None) -> dict[str, Any]:
    bits = values.dtype.itemsize * 8
    return {
        "Rows": us(values.shape[0]),
        "Columns": us(values.shape[1]),
        "BitsAllocated": us(bits),
        "BitsStored": us(stored),
        "HighBit": us(stored - 1 if high is None else high),
        "PixelRepresentation": us(is_signed),
        "PixelData": ("OW", values.tobytes()),
    }


def colour(photometric: bytes, content: bytes, *, planar: int = 0) -> dict[str, Any]:
    return {
        "Rows": us(4),
        "Columns": us(4),
        "SamplesPerPixel": us(3),
        "PhotometricInterpretation": photometric,
        "PlanarConfiguration": us(planar),
        "PixelData": ("OB", content),
    }


def test_stored_values_come_out_as_they_are(read: Read, compose: Compose) -> None:
    stored = read(compose()).stored
    np.testing.assert_array_equal(stored, np.arange(12, dtype=np.uint8).reshape(1, 4, 3))
    assert stored.dtype == np.uint8


def test_a_signed_twelve_bit_value_takes_its_sign_from_bit_eleven_and_drops_the_overlay_above(read: Read, compose: Compose) -> None:
    values = np.linspace(-1024, 2047, 64).round().astype(np.int64).reshape(8, 8)
    words = (values & 0x0FFF).astype("<u2")
    words[:, ::2] |= 0xA000
    stored = read(compose(**grey(words, stored=12, is_signed=1))).stored
    np.testing.assert_array_equal(stored[0], values)
    assert stored.dtype == np.int16


def test_bits_stored_below_a_higher_high_bit_are_shifted_down(read: Read, compose: Compose) -> None:
    values = np.array([[0, 1], [2000, 4095]])
    stored = read(compose(**grey((values << 4).astype("<u2"), stored=12, high=15))).stored
    np.testing.assert_array_equal(stored[0], values)


def test_the_lowest_sixteen_bit_value_survives(read: Read, compose: Compose) -> None:
    values = np.array([[-32768, 32767], [0, -1]], "<i2")
    np.testing.assert_array_equal(read(compose(**grey(values, stored=16, is_signed=1))).stored[0], values)


def test_eight_bits_in_sixteen_come_out_in_the_narrow_type(read: Read, compose: Compose) -> None:
    stored = read(compose(**grey(np.array([[0, 255], [7, 9]], "<u2"), stored=8))).stored
    assert stored.dtype == np.uint8
    assert stored.max() == 255


@pytest.mark.parametrize(
    "changes",
    [
        colour(b"RGB", CARD.tobytes()),
        colour(b"RGB", np.ascontiguousarray(CARD.transpose(2, 0, 1)).tobytes(), planar=1),
    ],
    ids=["interleaved", "planar"],
)
def test_colour_comes_out_pixel_by_pixel_whatever_its_layout(read: Read, compose: Compose, changes: dict[str, Any]) -> None:
    np.testing.assert_array_equal(read(compose(**changes)).stored[0], CARD)


@pytest.mark.parametrize("is_halved", [False, True], ids=["full", "422"])
def test_ybr_comes_out_as_rgb(read: Read, compose: Compose, is_halved: bool) -> None:
    red, green, blue = (CARD[..., sample].astype(float) for sample in range(3))
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    ybr = np.stack([luma, 128 + (blue - luma) / 1.772, 128 + (red - luma) / 1.402], axis=-1).round()
    pairs = ybr.reshape(4, 2, 2, 3)
    halved = np.stack([pairs[..., 0, 0], pairs[..., 1, 0], pairs[..., :, 1].mean(-1), pairs[..., :, 2].mean(-1)], axis=-1)
    content = (halved if is_halved else ybr).astype(np.uint8).tobytes()
    stored = read(compose(**colour(b"YBR_FULL_422" if is_halved else b"YBR_FULL", content))).stored
    np.testing.assert_allclose(stored[0].astype(float), CARD, atol=3)


@pytest.mark.parametrize("entry_bits", [8, 16])
def test_a_palette_is_expanded_as_pydicom_expands_it(read: Read, compose: Compose, entry_bits: int) -> None:
    draw = np.random.default_rng(5)
    tables = {name: draw.integers(0, 2**entry_bits, 12).astype(f"<u{entry_bits // 8}").tobytes() for name in ("Red", "Green", "Blue")}
    changes: dict[str, Any] = {"PhotometricInterpretation": b"PALETTE COLOR"}
    theirs = Dataset()
    for name, table in tables.items():
        changes[f"{name}PaletteColorLookupTableDescriptor"] = struct.pack("<HHH", 12, 0, entry_bits)
        changes[f"{name}PaletteColorLookupTableData"] = ("OW", table)
        setattr(theirs, f"{name}PaletteColorLookupTableDescriptor", [12, 0, entry_bits])
        setattr(theirs, f"{name}PaletteColorLookupTableData", table)
    decoded = read(compose(**changes))
    expected = apply_color_lut(np.arange(12, dtype=np.uint8).reshape(4, 3), theirs)
    np.testing.assert_array_equal(decoded.stored[0], expected)
    assert decoded.header.bits_stored == entry_bits


@pytest.mark.parametrize("cut_bytes", [1, 6, 11])
def test_fewer_pixels_than_declared_are_refused_and_never_filled(read: Read, compose: Compose, cut_bytes: int) -> None:
    with pytest.raises(TruncatedPixels) as refusal:
        read(compose()[:-cut_bytes])
    assert refusal.value.facts == {"declared_bytes": 12, "present_bytes": 12 - cut_bytes}


def test_bytes_behind_the_pixels_are_left_out_with_a_warning(read: Read, compose: Compose) -> None:
    decoded = read(compose(PixelData=("OB", bytes(range(20)))))
    np.testing.assert_array_equal(decoded.stored.ravel(), np.arange(12))
    assert decoded.header.warnings == ("pixel-bytes-excess",)


def test_an_odd_number_of_pixels_needs_no_padding_byte(read: Read, compose: Compose) -> None:
    whole = compose(Rows=us(5), Columns=us(5), PixelData=("OB", bytes(range(25))), pixel_length=25)
    assert read(whole[:-1]).stored.max() == 24


@pytest.mark.parametrize("pixels", [None, ("OB", b"")])
def test_an_image_without_pixels_is_told_so(read: Read, compose: Compose, pixels: tuple[str, bytes] | None) -> None:
    with pytest.raises(NoPixelData):
        read(compose(PixelData=pixels))


def test_a_constant_image_decodes(read: Read, compose: Compose) -> None:
    assert not read(compose(PixelData=("OB", bytes(12)))).stored.any()
