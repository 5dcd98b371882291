"""Sizes of a region. A pixel is an area, not a point: every length runs from edge to edge of the pixels."""

import numpy as np
import numpy.typing as npt
from scipy.spatial import ConvexHull

from pipeline.imaging.arrays import FloatImage, MaskImage
from pipeline.imaging.components import Component
from schemas.report import Box, Measurement

Lengths = npt.NDArray[np.float64]

HOUNSFIELD_UNIT = "[hnsf'U]"
GREY_UNIT = "1"


def box_of(component: Component) -> Box:
    """The bounding box, in pixels of the source image."""
    height_px, width_px = component.mask.shape
    return Box(top_px=component.top_px, left_px=component.left_px, height_px=height_px, width_px=width_px)


def measure_size(component: Component, *, spacing_mm: tuple[float, float] | None) -> tuple[Measurement, ...]:
    """Measure area, long and short axis and the bounding box.

    The long axis is the greatest distance between two points of the region, the short axis the region's
    greatest extent perpendicular to it. Both are taken between pixel corners, so a region of one pixel has
    a long axis of one pixel diagonal and no region is degenerate.

    Parameters
    ----------
    component
        A region of the source image.
    spacing_mm
        (between rows, between columns), as Pixel Spacing (0028,0030) orders them; None where the image states none.

    Returns
    -------
    In mm and mm2, or in px and px2 without a spacing.
    """
    row_size, column_size = spacing_mm or (1.0, 1.0)
    unit = "mm" if spacing_mm else "px"
    height_px, width_px = component.mask.shape
    long_axis, short_axis = _axes(_corners(component.mask) * (row_size, column_size))
    return (
        Measurement(name="area", value=component.area_px * row_size * column_size, unit=f"{unit}2"),
        Measurement(name="long_axis", value=long_axis, unit=unit),
        Measurement(name="short_axis", value=short_axis, unit=unit),
        Measurement(name="box_height", value=height_px * row_size, unit=unit),
        Measurement(name="box_width", value=width_px * column_size, unit=unit),
    )


def measure_mean(component: Component, values: FloatImage, *, modality: str) -> Measurement:
    """Average the values under a region.

    Parameters
    ----------
    component
        A region of the source image.
    values
        (row, column), modality values of the component's bounding box alone (`component.window`).
    modality
        Modality (0008,0060). CT values are Hounsfield units, all others plain grey values.
    """
    mean = float(values[component.mask].mean(dtype=np.float64))
    return Measurement(name="mean_value", value=mean, unit=HOUNSFIELD_UNIT if modality == "CT" else GREY_UNIT)


def mean_probability(component: Component, probability: FloatImage) -> float:
    """Average a map of the source geometry, (row, column) and 0 to 1, inside a region."""
    inside = probability[component.window][component.mask]
    return min(1.0, float(inside.mean(dtype=np.float64)))


def _corners(mask: MaskImage) -> Lengths:
    """(point, 2): the corners of each row's first and last pixel. No other corner can lie on the convex hull."""
    height_px, width_px = mask.shape
    rows = np.arange(height_px)
    left = mask.argmax(axis=1)
    right = width_px - mask[:, ::-1].argmax(axis=1)
    edges = [np.column_stack((rows + below, columns)) for below in (0, 1) for columns in (left, right)]
    return np.concatenate(edges).astype(np.float64)


def _axes(corners: Lengths) -> tuple[float, float]:
    """Long axis, and the extent across it, of points that do not lie on one line."""
    hull: Lengths = corners[ConvexHull(corners).vertices]
    distances = np.linalg.norm(hull[:, np.newaxis] - hull, axis=2)
    start, end = np.unravel_index(distances.argmax(), distances.shape)
    long_axis = float(distances[start, end])
    row_step, column_step = (hull[end] - hull[start]) / long_axis
    across = hull @ (-column_step, row_step)
    return long_axis, float(np.ptp(across))
