import numpy as np
import pytest
from pydicom.dataset import Dataset
from pydicom.pixels.processing import apply_windowing

from pipeline.imaging.window import BadWindow, full_range_window, percentile_window, window_linear

HU = np.linspace(-1500, 3000, 400, dtype=np.float32).reshape(20, 20)


def ct_window(center: float, width: float) -> Dataset:
    """What pydicom needs to window CT values to 0 to 65535."""
    dataset = Dataset()
    dataset.PhotometricInterpretation = "MONOCHROME2"
    dataset.BitsStored, dataset.PixelRepresentation = 16, 0
    dataset.WindowCenter, dataset.WindowWidth = center, width
    return dataset


@pytest.mark.parametrize(("center", "width"), [(40, 400), (-600, 1500), (0.5, 2), (300, 1)])
def test_the_linear_window_agrees_with_pydicom(center: float, width: float) -> None:
    theirs = apply_windowing(HU, ct_window(center, width)) / 65535
    np.testing.assert_allclose(window_linear(HU, center=center, width=width), theirs, atol=1e-6)


def test_the_linear_window_maps_the_standards_own_corner_points() -> None:
    # PS3.3 C.11.2.1.2.1, center 2048 and width 4096: 0 is the first grey, 4095 the last.
    values = np.array([[-1, 0, 4095, 4096]], np.float32)
    np.testing.assert_array_equal(window_linear(values, center=2048, width=4096), [[0, 0, 1, 1]])


@pytest.mark.parametrize("width", [0, -5, 0.5])
def test_a_width_below_one_is_refused(width: float) -> None:
    with pytest.raises(BadWindow):
        window_linear(HU, center=0, width=width)


def test_the_full_range_covers_what_the_stored_bits_could_hold() -> None:
    values = np.array([[-2048, -0.5, 2047]], np.float32)
    display = full_range_window(values, bits_stored=12, is_signed=True, slope=1, intercept=0)
    np.testing.assert_allclose(display, [[0, 0.5, 1]], atol=1e-6)


def test_the_full_range_keeps_the_direction_of_a_negative_slope() -> None:
    values = np.array([[0, -255]], np.float32)
    np.testing.assert_array_equal(full_range_window(values, bits_stored=8, is_signed=False, slope=-1, intercept=0), [[1, 0]])


def test_percentiles_ignore_a_few_extreme_pixels() -> None:
    values = np.linspace(100, 200, 10_000, dtype=np.float32).reshape(100, 100)
    values[0, 0] = 1e6
    display = percentile_window(values)
    assert display[50, 50] == pytest.approx(0.5, abs=0.02)


def test_percentiles_do_not_count_padding() -> None:
    values = np.full((10, 10), -2000, np.float32)
    values[:5] = np.linspace(0, 1, 50).reshape(5, 10)
    assert percentile_window(values, valid=values > -2000)[2].mean() == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("valid", [None, np.zeros((4, 4), np.bool_)])
def test_a_constant_image_gives_black_and_no_division_by_zero(valid: np.ndarray | None) -> None:
    display = percentile_window(np.full((4, 4), 7, np.float32), valid=valid)
    np.testing.assert_array_equal(display, np.zeros((4, 4)))
