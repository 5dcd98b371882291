"""Pictures of a reading, read back with Pillow and judged by their pixels."""

from io import BytesIO

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from pipeline.imaging.components import Component, find_components
from pipeline.imaging.overlay import MIN_WIDTH_PX, OUTLINE_RGB, draw_overlay, probability_png

Display = npt.NDArray[np.uint8]

HEADLINE = "AI result, not verified."
MODEL = "breast-lesion 1"


def ramp(rows_px: int = 300, columns_px: int = 320) -> Display:
    """Every grey level, left to right."""
    levels = np.linspace(0, 255, columns_px).round().astype(np.uint8)
    return np.tile(levels, (rows_px, 1))


def blocks(*places: tuple[int, int, int, int], shape: tuple[int, int] = (300, 320)) -> tuple[Component, ...]:
    """Rectangular regions, each (top, left, height, width)."""
    probability = np.zeros(shape, dtype=np.float32)
    for top, left, height, width in places:
        probability[top : top + height, left : left + width] = 1
    return find_components(probability, threshold=0.5, min_area_px=1)


def drawn(display: Display, components: tuple[Component, ...] = (), *, first_number: int = 1, headline: str = HEADLINE) -> Display:
    """The overlay as a viewer sees it: (row, column, RGB)."""
    content = draw_overlay(display, components, headline=headline, model=MODEL, first_number=first_number)
    return np.asarray(Image.open(BytesIO(content)).convert("RGB"))


def outline_pixels(picture: Display) -> npt.NDArray[np.bool_]:
    pixels: npt.NDArray[np.bool_] = (picture == OUTLINE_RGB).all(axis=-1)
    return pixels


def test_the_image_keeps_its_size_and_its_grey_levels() -> None:
    """given no region, then every pixel differs from the display by less than the 252 levels of the palette allow"""
    display = ramp()
    image = drawn(display)[: display.shape[0], : display.shape[1]]
    assert np.ptp(image, axis=-1).max() == 0
    assert np.abs(image[..., 0].astype(int) - display).max() <= 1


def test_black_stays_black_and_white_stays_white() -> None:
    image = drawn(ramp())
    assert image[0, 0].tolist() == [0, 0, 0]
    assert image[0, 319].tolist() == [255, 255, 255]


def test_the_footer_lies_below_the_image() -> None:
    display = ramp()
    picture = drawn(display)
    footer = picture[display.shape[0] :]
    assert picture.shape[1] == display.shape[1]
    assert footer.shape[0] > 12
    assert footer.max() == 255


def test_the_outline_runs_along_the_regions_rim() -> None:
    components = blocks((100, 120, 60, 80))
    found = outline_pixels(drawn(ramp(), components))[90:170, 110:205]
    expected = np.zeros((80, 95), dtype=np.bool_)
    expected[10:70, 10:90] = True
    expected[11:69, 11:89] = False
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("level", [0, 255])
def test_the_outline_is_edged_in_black(level: int) -> None:
    """given a region on plain black or white, then the pixel beside the line is black"""
    display = np.full((300, 320), level, dtype=np.uint8)
    picture = drawn(display, blocks((100, 120, 60, 80)))
    assert picture[130, 119].tolist() == [0, 0, 0]
    assert picture[130, 120].tolist() == list(OUTLINE_RGB)
    assert picture[130, 121].tolist() == [0, 0, 0]


@pytest.mark.parametrize(("side_px", "line_px"), [(400, 1), (512, 2), (1000, 3)])
def test_the_line_grows_with_the_image(side_px: int, line_px: int) -> None:
    components = blocks((100, 100, 200, 150), shape=(side_px, side_px))
    picture = drawn(ramp(side_px, side_px), components)
    assert outline_pixels(picture)[200, 90:110].sum() == line_px


def test_a_region_at_the_edge_is_drawn_inside_the_image() -> None:
    display = ramp()
    picture = drawn(display, blocks((0, 0, 300, 320)))
    assert outline_pixels(picture)[299, :320].all()
    assert not outline_pixels(picture)[300:].any()


def test_a_finding_has_its_number_beside_it() -> None:
    found = outline_pixels(drawn(ramp(), blocks((100, 120, 60, 80))))
    assert found[95:125, 203:230].any()


def test_the_number_goes_to_the_left_where_the_image_ends() -> None:
    found = outline_pixels(drawn(ramp(), blocks((100, 250, 60, 70))))
    assert found[95:125, 225:248].any()


def test_other_numbers_look_different() -> None:
    """given the second finding of a report, then it is not drawn as its first"""
    components = blocks((100, 120, 60, 80))
    assert not np.array_equal(drawn(ramp(), components, first_number=1), drawn(ramp(), components, first_number=2))


def test_a_narrow_image_gets_a_margin_for_the_footer() -> None:
    picture = drawn(ramp(40, 30))
    assert picture.shape[1] == MIN_WIDTH_PX
    assert picture[:40, 30:].max() == 0


def test_the_footer_of_a_narrow_image_is_wrapped_and_not_cut() -> None:
    """given wide letters, then no text touches the strip's right edge"""
    picture = drawn(ramp(40, 240), headline="WWWW MMMM WWWW MMMM WWWW MMMM")
    assert np.ptp(picture[40:, -3:]) == 0


def test_another_headline_gives_another_footer() -> None:
    negative = drawn(ramp(), headline="No finding (AI, not verified).")
    assert not np.array_equal(negative[300:], drawn(ramp())[300:])


def test_a_picture_carries_pixels_and_nothing_else() -> None:
    picture = Image.open(BytesIO(draw_overlay(ramp(), (), headline=HEADLINE, model=MODEL)))
    assert picture.mode == "P"
    assert picture.info == {}


def test_the_probability_map_is_kept_to_a_255th() -> None:
    probability = np.random.default_rng(5).random((70, 90), dtype=np.float32)
    picture = Image.open(BytesIO(probability_png(probability)))
    assert picture.mode == "L"
    np.testing.assert_allclose(np.asarray(picture) / 255, probability, atol=0.5 / 255 + 1e-6)


def test_certain_and_impossible_are_white_and_black() -> None:
    picture = Image.open(BytesIO(probability_png(np.array([[0, 1]], dtype=np.float32))))
    assert np.asarray(picture).tolist() == [[0, 255]]
