"""Sizes in millimetres: where the image states its scale, against a ruler laid on the mask by hand."""

from io import BytesIO

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from pipeline.dicom.phantom import PhantomStudy, phantom_instance
from pipeline.imaging.phantom import phantom
from tests.acceptance.running import Door, Json

pytestmark = pytest.mark.services

SEEDS = (1, 3, 9)
MODEL_ERROR = 0.08
"""How far the model's outline of a phantom may be from the true one; the ruler itself is exact."""
ROWS_MM, COLUMNS_MM = 0.08, 0.13

Mask = npt.NDArray[np.bool_]


def longest_mm(mask: Mask, spacing_mm: tuple[float, float]) -> float:
    """The greatest distance between two corners of the mask's pixels, tried one by one."""
    padded = np.pad(mask, 1)
    # A corner belongs to four pixels; only one that also belongs to a pixel outside can be an end.
    around = [padded[:-1, :-1], padded[:-1, 1:], padded[1:, :-1], padded[1:, 1:]]
    corners = np.argwhere(np.any(around, axis=0) & ~np.all(around, axis=0)) * spacing_mm
    return float(max(np.hypot(*(corners - corner).T).max() for corner in corners))


def sizes(case: Json) -> tuple[dict[str, float], dict[str, str]]:
    """The values and the units of the one finding's measurements."""
    (finding,) = case["result"]["images"][0]["findings"]
    measured = finding["measurements"]
    return {each["name"]: each["value"] for each in measured}, {each["name"]: each["unit"] for each in measured}


def read_phantom(door: Door, seed: int, **told: object) -> tuple[Json, Mask, Mask]:
    """The case, the phantom's true mask, and the model's mask on the source grid."""
    image, truth = phantom(seed)
    study = PhantomStudy(name=f"sizes-{seed}-{sorted(told)}", spacing_mm=(ROWS_MM, COLUMNS_MM), **told)  # type: ignore[arg-type]
    case = door.answered(phantom_instance(image, study))
    with Image.open(BytesIO(door.http.get(f"/v1/cases/{case['case_id']}/probability.png").content)) as png:
        return case, truth, np.asarray(png) >= 128


@pytest.mark.parametrize("seed", SEEDS)
def test_the_long_axis_in_mm_is_what_a_ruler_says(door: Door, seed: int) -> None:
    case, truth, outlined = read_phantom(door, seed)
    values, units = sizes(case)

    assert units["long_axis"] == "mm"
    assert values["long_axis"] == pytest.approx(longest_mm(outlined, (ROWS_MM, COLUMNS_MM)))
    assert values["long_axis"] == pytest.approx(longest_mm(truth, (ROWS_MM, COLUMNS_MM)), rel=MODEL_ERROR)


def test_the_area_is_in_square_millimetres(door: Door) -> None:
    case, truth, outlined = read_phantom(door, SEEDS[0])
    values, units = sizes(case)

    assert units["area"] == "mm2"
    assert values["area"] == pytest.approx(outlined.sum() * ROWS_MM * COLUMNS_MM)
    assert values["area"] == pytest.approx(truth.sum() * ROWS_MM * COLUMNS_MM, rel=MODEL_ERROR)


def test_rows_and_columns_keep_their_own_spacing(door: Door) -> None:
    case, _, outlined = read_phantom(door, SEEDS[0])
    (rows, columns), (values, units) = outlined.nonzero(), sizes(case)

    assert (units["box_height"], units["box_width"]) == ("mm", "mm")
    assert values["box_height"] == pytest.approx((np.ptp(rows) + 1) * ROWS_MM)
    assert values["box_width"] == pytest.approx((np.ptp(columns) + 1) * COLUMNS_MM)


def test_the_scale_may_stand_in_the_region_or_in_the_pixel_spacing(door: Door) -> None:
    by_region, _, _ = read_phantom(door, SEEDS[0], has_region=True)
    by_spacing, _, _ = read_phantom(door, SEEDS[0], has_region=False, has_pixel_spacing=True)

    assert sizes(by_region)[0] == pytest.approx(sizes(by_spacing)[0])
    sources = [case["result"]["images"][0]["spacing_source"] for case in (by_region, by_spacing)]
    assert sources == ["ultrasound_region", "pixel_spacing"]


def test_the_summary_names_the_size_and_its_unit(door: Door) -> None:
    case, _, _ = read_phantom(door, SEEDS[0])
    values, _ = sizes(case)

    assert f"largest {values['long_axis']:.0f} x {values['short_axis']:.1f} mm" in case["result"]["summary"]


def test_a_phantom_without_a_lesion_says_that_nothing_was_found(door: Door) -> None:
    image, _ = phantom(5, has_lesion=False)
    case = door.answered(phantom_instance(image, PhantomStudy(name="sizes-none")))

    assert case["result"]["outcome"] == "nothing_found"
    assert case["result"]["summary"] == "Nothing found in 1 image."
