"""Fit an image into the model's square without distortion, and bring results back."""

from typing import Final

import numpy as np
from PIL import Image

from pipeline.imaging.arrays import ByteImage, FloatImage
from pipeline.imaging.resample import resample
from schemas.work import Placement

SAME_SPACING: Final = 1e-3
"""Row and column spacing that differ by less are one number, rounded twice."""


def letterbox(display: ByteImage, side_px: int, *, spacing_mm: tuple[float, float] | None = None) -> tuple[ByteImage, Placement]:
    """Scale an image into the middle of a black square, aspect true.

    Parameters
    ----------
    display
        (row, column), uint8.
    side_px
        Side of the square.
    spacing_mm
        (between rows, between columns). Where they differ the pixels are not square, and the image takes its
        physical shape. None: square pixels.

    Returns
    -------
    framed
        (row, column), uint8, `side_px` each; bilinear, zero around.
    placement
        Where the image lies in the square.
    """
    source_rows_px, source_columns_px = display.shape
    rows_px, columns_px = _fitted(source_rows_px, source_columns_px, side_px, spacing_mm)
    top_px, left_px = (side_px - rows_px) // 2, (side_px - columns_px) // 2
    scaled = Image.fromarray(display).resize((columns_px, rows_px), Image.Resampling.BILINEAR)
    framed = np.zeros((side_px, side_px), np.uint8)
    framed[top_px : top_px + rows_px, left_px : left_px + columns_px] = np.asarray(scaled)
    placement = Placement(
        side_px=side_px,
        top_px=top_px,
        left_px=left_px,
        rows_px=rows_px,
        columns_px=columns_px,
        source_rows_px=source_rows_px,
        source_columns_px=source_columns_px,
    )
    return framed, placement


def undo_letterbox(values: ByteImage, placement: Placement, *, unit: float = 1.0) -> FloatImage:
    """Bring values on the model's square back to the grid of the source image.

    Parameters
    ----------
    values
        (row, column), uint8, `placement.side_px` each.
    placement
        What `letterbox` returned for the image.
    unit
        The value that becomes 1.0.

    Returns
    -------
    (row, column) of the source image, float32; bilinear, not rounded.
    """
    rows = slice(placement.top_px, placement.top_px + placement.rows_px)
    columns = slice(placement.left_px, placement.left_px + placement.columns_px)
    return resample(values[rows, columns], placement.source_rows_px, placement.source_columns_px, unit=unit)


def _fitted(rows_px: int, columns_px: int, side_px: int, spacing_mm: tuple[float, float] | None) -> tuple[int, int]:
    """Rows and columns of the scaled image: its longer physical side fills the square."""
    height, width = float(rows_px), float(columns_px)
    if spacing_mm is not None and abs(spacing_mm[0] - spacing_mm[1]) > SAME_SPACING * max(spacing_mm):
        height, width = rows_px * spacing_mm[0], columns_px * spacing_mm[1]
    scale = side_px / max(height, width)
    return max(1, round(height * scale)), max(1, round(width * scale))
