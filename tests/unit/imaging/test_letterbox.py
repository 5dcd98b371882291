import numpy as np
import pytest
from PIL import Image

from pipeline.imaging.letterbox import letterbox, undo_letterbox
from schemas.work import Placement


def pillow_letterbox(image: Image.Image, side: int) -> Image.Image:
    """What the model was trained on."""
    width, height = image.size
    scale = side / max(width, height)
    new = max(1, round(width * scale)), max(1, round(height * scale))
    square = Image.new("L", (side, side), 0)
    square.paste(image.resize(new, Image.Resampling.BILINEAR), ((side - new[0]) // 2, (side - new[1]) // 2))
    return square


@pytest.mark.parametrize("shape", [(400, 320), (273, 383), (256, 256), (100, 50), (1, 900), (64, 63), (1024, 768)])
def test_the_square_is_bit_for_bit_the_one_of_the_training(shape: tuple[int, int]) -> None:
    display = np.random.default_rng(7).integers(0, 256, shape).astype(np.uint8)
    framed, _ = letterbox(display, 256)
    np.testing.assert_array_equal(framed, np.asarray(pillow_letterbox(Image.fromarray(display), 256)))


def test_the_placement_tells_where_the_image_lies() -> None:
    _, placement = letterbox(np.full((400, 320), 9, np.uint8), 256)
    expected = {"top_px": 0, "left_px": 25, "rows_px": 256, "columns_px": 205, "source_rows_px": 400, "source_columns_px": 320}
    assert placement == Placement(side_px=256, **expected)


@pytest.mark.parametrize(
    ("rows", "columns", "spacing_mm"), [(40, 160, (2.0, 0.5)), (80, 80, (1.0, 1.0)), (160, 40, (0.5, 2.0)), (80, 80, None)]
)
def test_a_circle_stays_a_circle_when_pixels_are_not_square(rows: int, columns: int, spacing_mm: tuple[float, float] | None) -> None:
    row_mm, column_mm = spacing_mm or (1.0, 1.0)
    y, x = np.mgrid[:rows, :columns]
    inside = ((y + 0.5) * row_mm - 40) ** 2 + ((x + 0.5) * column_mm - 40) ** 2 <= 400
    framed, _ = letterbox((inside * 255).astype(np.uint8), 256, spacing_mm=spacing_mm)
    high = np.flatnonzero((framed > 127).any(axis=1))
    wide = np.flatnonzero((framed > 127).any(axis=0))
    assert len(wide) / len(high) == pytest.approx(1.0, abs=0.05)


def test_going_back_gives_the_source_grid_as_pillow_resizes_it() -> None:
    values = np.random.default_rng(8).integers(0, 256, (256, 256)).astype(np.uint8)
    _, placement = letterbox(np.zeros((400, 320), np.uint8), 256)
    cut = Image.fromarray(values[:, 25:230].astype(np.float32))
    expected = np.asarray(cut.resize((320, 400), Image.Resampling.BILINEAR))
    np.testing.assert_allclose(undo_letterbox(values, placement), expected, atol=1e-3)


def test_there_and_back_returns_a_smooth_image() -> None:
    y, x = np.mgrid[:400, :320]
    smooth = (127 + 60 * np.sin(y / 60) + 60 * np.cos(x / 70)).astype(np.uint8)
    framed, placement = letterbox(smooth, 256)
    np.testing.assert_allclose(undo_letterbox(framed, placement), smooth, atol=3)
