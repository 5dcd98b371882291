from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipeline.imaging.photometric import display_values, luminance, to_display_u8
from schemas.instance import InstanceHeader

BYTES = np.arange(256, dtype=np.uint8).reshape(16, 16)


def header(**changes: Any) -> InstanceHeader:
    plain: dict[str, Any] = {
        "sop_class_uid": "1.2.840.10008.5.1.4.1.1.6.1",
        "sop_instance_uid": "2.25.1",
        "study_instance_uid": "2.25.2",
        "series_instance_uid": "2.25.3",
        "transfer_syntax_uid": "1.2.840.10008.1.2.1",
        "modality": "US",
        "rows_px": 16,
        "columns_px": 16,
        "frame_count": 1,
        "samples_per_pixel": 1,
        "photometric_interpretation": "MONOCHROME2",
        "bits_stored": 8,
        "is_signed": False,
    }
    return InstanceHeader(**(plain | changes))


@pytest.mark.parametrize("window", [{}, {"window_center": 128, "window_width": 256}, {"window_center": 127.5, "window_width": 255}])
def test_eight_bit_grey_without_a_telling_window_is_shown_as_stored(window: dict[str, float]) -> None:
    np.testing.assert_array_equal(to_display_u8(BYTES, header(**window)), BYTES)


def test_the_short_way_for_eight_bits_equals_the_long_one() -> None:
    np.testing.assert_array_equal(np.rint(display_values(BYTES, header()) * 255), BYTES)


def test_monochrome1_is_turned_once() -> None:
    turned = header(photometric_interpretation="MONOCHROME1")
    np.testing.assert_array_equal(to_display_u8(255 - BYTES, turned), BYTES)


def test_one_chest_in_two_encodings_gives_one_display() -> None:
    chest = np.linspace(0, 4095, 256).round().astype(np.uint16).reshape(16, 16)
    told = {"bits_stored": 12, "modality": "DX", "window_width": 3000.0}
    upright = display_values(chest, header(**told, window_center=2048.0))
    inverse = display_values(
        (4095 - chest).astype(np.uint16), header(**told, window_center=2048.0, photometric_interpretation="MONOCHROME1")
    )
    np.testing.assert_allclose(inverse, upright, atol=1 / 2999 + 1e-6)


def test_a_window_is_stated_on_modality_values() -> None:
    stored = np.array([[1024 - 160, 1024 + 239]], np.uint16)
    ct = header(bits_stored=12, slope=1.0, intercept=-1024.0, window_center=40.0, window_width=400.0, modality="CT")
    np.testing.assert_array_equal(to_display_u8(stored, ct), [[0, 255]])


def test_percentiles_are_taken_where_the_card_asks_and_no_window_is_stated() -> None:
    dim = (BYTES // 4).astype(np.uint8)
    assert to_display_u8(dim, header(), fallback="full_range").max() == 63
    assert to_display_u8(dim, header(), fallback="percentile").max() == 255


def test_padding_does_not_darken_the_rest() -> None:
    stored = np.full((16, 16), -2000, np.int16)
    stored[4:12] = np.linspace(0, 100, 128).reshape(8, 16)
    padded = header(bits_stored=16, is_signed=True, padding_value=-2000)
    display = to_display_u8(stored, padded, fallback="percentile")
    assert display[0, 0] == 0
    assert display[4:12].std() > 60


def test_luminance_agrees_with_pillow() -> None:
    colour = np.random.default_rng(2).integers(0, 256, (16, 16, 3)).astype(np.uint8)
    theirs = np.asarray(Image.fromarray(colour).convert("L"), np.float32)
    np.testing.assert_allclose(luminance(colour), theirs, atol=1)


def test_a_grey_picture_in_colour_gives_the_same_display_as_in_grey() -> None:
    colour = np.repeat(BYTES[..., np.newaxis], 3, axis=2)
    rgb = header(samples_per_pixel=3, photometric_interpretation="RGB")
    np.testing.assert_array_equal(to_display_u8(colour, rgb), BYTES)


def test_a_palette_of_sixteen_bits_uses_its_whole_range() -> None:
    colour = np.array([[[65535, 65535, 65535], [0, 0, 0]]], np.uint16)
    palette = header(photometric_interpretation="PALETTE COLOR", bits_stored=16)
    np.testing.assert_array_equal(to_display_u8(colour, palette), [[255, 0]])


@pytest.mark.parametrize("fallback", ["header", "full_range", "percentile"])
def test_a_constant_image_stays_finite(fallback: Any) -> None:
    flat = np.full((4, 4), -32768, np.int16)
    display = display_values(flat, header(bits_stored=16, is_signed=True), fallback=fallback)
    assert np.isfinite(display).all()
