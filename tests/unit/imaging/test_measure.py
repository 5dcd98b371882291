"""Sizes of regions, against arithmetic and against skimage."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from skimage.measure import regionprops

from pipeline.imaging.components import Component, find_components
from pipeline.imaging.measure import box_of, mean_probability, measure_mean, measure_size
from schemas.report import Box


def component_of(mask: npt.NDArray[np.bool_]) -> Component:
    """The one region of a mask."""
    (component,) = find_components(mask.astype(np.float32), threshold=0.5, min_area_px=1)
    return component


def rectangle(height_px: int, width_px: int) -> Component:
    mask = np.zeros((60, 80), dtype=np.bool_)
    mask[7 : 7 + height_px, 11 : 11 + width_px] = True
    return component_of(mask)


def ellipse(long_mm: float, short_mm: float, *, angle_deg: float, spacing_mm: tuple[float, float]) -> Component:
    """An ellipse by its full axes in mm, turned, on a grid of the given spacing."""
    rows_mm = (np.arange(400) - 199.5)[:, np.newaxis] * spacing_mm[0]
    columns_mm = (np.arange(400) - 199.5)[np.newaxis] * spacing_mm[1]
    turn = math.radians(angle_deg)
    along = columns_mm * math.cos(turn) + rows_mm * math.sin(turn)
    across = rows_mm * math.cos(turn) - columns_mm * math.sin(turn)
    return component_of((along / (long_mm / 2)) ** 2 + (across / (short_mm / 2)) ** 2 <= 1)


def sizes(component: Component, spacing_mm: tuple[float, float] | None = None) -> dict[str, float]:
    return {measured.name: measured.value for measured in measure_size(component, spacing_mm=spacing_mm)}


def test_a_rectangle_in_pixels_measures_as_on_paper() -> None:
    """given 30 by 40 pixels, then the diagonal is 50 and the extent across it twice the height of half the rectangle"""
    assert sizes(rectangle(30, 40)) == pytest.approx(
        {"area": 1200, "long_axis": 50, "short_axis": 2 * 30 * 40 / 50, "box_height": 30, "box_width": 40}
    )


def test_unequal_spacing_stretches_rows_and_columns_apart() -> None:
    """given 10 rows of 0.9 mm and 20 columns of 0.6 mm, then 9 by 12 mm and a diagonal of 15 mm"""
    assert sizes(rectangle(10, 20), (0.9, 0.6)) == pytest.approx(
        {"area": 108, "long_axis": 15, "short_axis": 2 * 9 * 12 / 15, "box_height": 9, "box_width": 12}
    )


def test_a_single_pixel_has_the_size_of_a_pixel() -> None:
    assert sizes(rectangle(1, 1)) == pytest.approx(
        {"area": 1, "long_axis": math.sqrt(2), "short_axis": math.sqrt(2), "box_height": 1, "box_width": 1}
    )


@pytest.mark.parametrize(("height_px", "width_px"), [(1, 30), (30, 1)])
def test_a_line_of_pixels_has_a_width(height_px: int, width_px: int) -> None:
    measured = sizes(rectangle(height_px, width_px))
    assert measured["long_axis"] == pytest.approx(math.hypot(1, 30))
    assert measured["short_axis"] == pytest.approx(2 * 30 / math.hypot(1, 30))


@pytest.mark.parametrize("angle_deg", [0, 20, 45, 71, 90, 135])
@pytest.mark.parametrize("spacing_mm", [(0.1, 0.1), (0.1, 0.2), (0.25, 0.1)])
def test_a_turned_ellipse_keeps_its_axes(angle_deg: float, spacing_mm: tuple[float, float]) -> None:
    """given an ellipse of 24 by 15 mm, then the axes are found within a pixel's diagonal at every angle"""
    measured = sizes(ellipse(24, 15, angle_deg=angle_deg, spacing_mm=spacing_mm), spacing_mm)
    pixel_mm = math.hypot(*spacing_mm)
    assert measured["long_axis"] == pytest.approx(24, abs=pixel_mm)
    assert measured["short_axis"] == pytest.approx(15, abs=2 * pixel_mm)
    assert measured["area"] == pytest.approx(math.pi * 12 * 7.5, rel=0.01)


@pytest.mark.parametrize("angle_deg", [0, 33, 60, 90])
def test_the_long_axis_agrees_with_skimage_within_a_pixel(angle_deg: float) -> None:
    component = ellipse(180, 90, angle_deg=angle_deg, spacing_mm=(1, 1))
    (region,) = regionprops(component.mask.astype(np.uint8))  # type: ignore[no-untyped-call]
    assert sizes(component)["long_axis"] == pytest.approx(region.feret_diameter_max, abs=1)


def test_lengths_are_in_pixels_where_the_image_states_no_spacing() -> None:
    units = {measured.name: measured.unit for measured in measure_size(rectangle(3, 4), spacing_mm=None)}
    assert units == {"area": "px2", "long_axis": "px", "short_axis": "px", "box_height": "px", "box_width": "px"}


def test_lengths_are_in_millimetres_where_it_states_one() -> None:
    units = {measured.name: measured.unit for measured in measure_size(rectangle(3, 4), spacing_mm=(0.5, 0.5))}
    assert units == {"area": "mm2", "long_axis": "mm", "short_axis": "mm", "box_height": "mm", "box_width": "mm"}


def test_the_box_lies_on_the_source_image() -> None:
    assert box_of(rectangle(5, 9)) == Box(top_px=7, left_px=11, height_px=5, width_px=9)


def test_the_mean_is_taken_inside_the_region_alone() -> None:
    """given a corner of three pixels, then the fourth value of its box does not count"""
    component = component_of(np.array([[True, False], [True, True]]))
    values = np.array([[10, 9999], [20, 60]], dtype=np.float32)
    assert measure_mean(component, values, modality="US").value == 30


@pytest.mark.parametrize(("modality", "unit"), [("CT", "[hnsf'U]"), ("US", "1"), ("DX", "1")])
def test_only_ct_values_are_hounsfield_units(modality: str, unit: str) -> None:
    assert measure_mean(rectangle(2, 2), np.ones((2, 2), dtype=np.float32), modality=modality).unit == unit


def test_the_probability_of_a_region_is_its_mean_inside() -> None:
    probability = np.zeros((60, 80), dtype=np.float32)
    probability[7:9, 11:13] = [[0.5, 0.6], [0.7, 0.8]]
    assert mean_probability(rectangle(2, 2), probability) == pytest.approx(0.65)
