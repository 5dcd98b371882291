"""Connected regions: which pixels, which order, which facts."""

import numpy as np
import numpy.typing as npt
import pytest
from scipy import ndimage
from skimage.measure import regionprops

from pipeline.imaging.arrays import FloatImage
from pipeline.imaging.components import find_components


def with_blocks(*blocks: tuple[int, int, int, int], shape: tuple[int, int] = (40, 50)) -> FloatImage:
    """A map of certain blocks, each (top, left, height, width)."""
    probability = np.zeros(shape, dtype=np.float32)
    for top, left, height, width in blocks:
        probability[top : top + height, left : left + width] = 1.0
    return probability


def areas_px(probability: FloatImage, *, threshold: float = 0.5, min_area_px: int = 1) -> list[int]:
    return [component.area_px for component in find_components(probability, threshold=threshold, min_area_px=min_area_px)]


def speckle(seed: int) -> FloatImage:
    """Smoothed noise: ragged regions of every size."""
    noise = np.random.default_rng(seed).random((120, 150))
    smooth: npt.NDArray[np.float64] = ndimage.gaussian_filter(noise, 3)
    scaled: FloatImage = ((smooth - smooth.min()) / np.ptp(smooth)).astype(np.float32)
    return scaled


def test_the_largest_region_comes_first() -> None:
    probability = with_blocks((1, 1, 2, 3), (10, 10, 5, 8), (30, 5, 3, 3))
    assert areas_px(probability) == [40, 9, 6]


def test_of_equal_regions_the_upper_one_comes_first() -> None:
    probability = with_blocks((20, 2, 3, 3), (5, 30, 3, 3))
    tops_px = [component.top_px for component in find_components(probability, threshold=0.5, min_area_px=1)]
    assert tops_px == [5, 20]


def test_regions_that_touch_at_a_corner_are_one() -> None:
    probability = with_blocks((4, 4, 2, 2), (6, 6, 2, 2))
    assert areas_px(probability) == [8]


def test_regions_under_the_smallest_area_are_left_out() -> None:
    probability = with_blocks((1, 1, 3, 3), (10, 10, 2, 5))
    assert areas_px(probability, min_area_px=10) == [10]


def test_a_pixel_with_exactly_the_threshold_is_inside() -> None:
    probability = with_blocks((3, 3, 2, 2)) * np.float32(0.25)
    assert areas_px(probability, threshold=0.25) == [4]


def test_a_map_without_a_region_has_no_components() -> None:
    assert find_components(np.zeros((8, 8), dtype=np.float32), threshold=0.5, min_area_px=1) == ()


def test_a_region_that_fills_the_image_has_the_border_as_its_rim() -> None:
    (component,) = find_components(np.ones((5, 7), dtype=np.float32), threshold=0.5, min_area_px=1)
    border = {(row, column) for row in range(5) for column in range(7) if row in (0, 4) or column in (0, 6)}
    assert {(row, column) for row, column in component.rim_px.tolist()} == border


def test_the_window_cuts_the_bounding_box_out_of_the_source_image() -> None:
    probability = with_blocks((12, 31, 4, 6))
    (component,) = find_components(probability, threshold=0.5, min_area_px=1)
    assert component.window == (slice(12, 16), slice(31, 37))
    assert probability[component.window].all()


@pytest.mark.parametrize("seed", range(4))
def test_regions_agree_with_two_other_libraries(seed: int) -> None:
    """given ragged regions, then scipy numbers and skimage measures the same ones"""
    probability = speckle(seed)
    numbered, _ = ndimage.label(probability >= 0.6, structure=np.ones((3, 3)))
    regions = regionprops(numbered)  # type: ignore[no-untyped-call]
    theirs = sorted((region for region in regions if region.area >= 20), key=lambda region: -region.area)
    ours = find_components(probability, threshold=0.6, min_area_px=20)
    assert len(ours) > 3
    for component, region in zip(ours, theirs, strict=True):
        assert component.area_px == region.area
        assert (component.top_px, component.left_px) == region.bbox[:2]
        assert component.centroid_px == pytest.approx(region.centroid)
        np.testing.assert_array_equal(component.mask, region.image)


@pytest.mark.parametrize("seed", range(2))
def test_the_rim_is_what_an_erosion_takes_away(seed: int) -> None:
    for component in find_components(speckle(seed), threshold=0.6, min_area_px=20):
        rim = component.mask & ~ndimage.binary_erosion(component.mask)
        theirs = np.argwhere(rim) + np.array((component.top_px, component.left_px))
        np.testing.assert_array_equal(component.rim_px, theirs)
