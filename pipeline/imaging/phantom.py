"""Made-up breast ultrasound: layers, septa, speckle and one dark lesion with its exact outline. No person's image."""

from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.ndimage import gaussian_filter

from pipeline.imaging.arrays import ByteImage, MaskImage

Grid = npt.NDArray[np.float64]
"""(row, column), float64: echo strength, or a coordinate in pixels."""

SKIN_PX: Final = 14
FAT_TO_PX: Final = 90
GLAND_TO_PX: Final = 260
MUSCLE_FROM_PX: Final = 300
SKIN_ECHO, FAT_ECHO, GLAND_ECHO, MUSCLE_ECHO, OTHER_ECHO, SEPTUM_ECHO, LESION_ECHO = 0.9, 0.28, 0.55, 0.4, 0.35, 0.85, 0.1
SEPTUM_COUNT: Final = 14
SEPTUM_HALF_PX: Final = 1.6
SMOOTH_BELOW: Final = 0.1
"""Irregularity under which a lesion counts as smooth: sound behind it is enhanced, behind others it is lost."""
ENHANCED, SHADOWED = 1.35, 0.6
DYNAMIC_RANGE_DB: Final = 48


def phantom(
    seed: int, *, has_lesion: bool = True, irregularity: float = 0.0, rows_px: int = 400, columns_px: int = 320
) -> tuple[ByteImage, MaskImage]:
    """Make one B-mode image and the outline of its lesion; the same seed gives the same image.

    Parameters
    ----------
    seed
        Of every random choice.
    has_lesion
        Without one the mask is empty.
    irregularity
        Edge of the lesion: 0 smooth, 0.3 spiky.
    rows_px, columns_px
        Size of the image; the layers lie at fixed depths, so at least 300 rows show all of them.

    Returns
    -------
    image
        (row, column), uint8.
    mask
        (row, column), bool, True in the lesion.
    """
    draw = np.random.default_rng(seed)
    y, x = (axis.astype(np.float64) for axis in np.mgrid[:rows_px, :columns_px])
    echo = _septa(_layers(y, x, draw), y, x, draw)
    mask = np.zeros((rows_px, columns_px), np.bool_)
    if has_lesion:
        echo, mask = _lesion(echo, y, x, irregularity=irregularity, draw=draw)
    return _b_mode(gaussian_filter(echo, 1.2), y / rows_px, draw), mask


def _layers(y: Grid, x: Grid, draw: np.random.Generator) -> Grid:
    """Skin, fat, gland and muscle, with wavy borders."""
    wave = 10 * np.sin(x / 37 + draw.uniform(0, 6)) + 6 * np.sin(x / 17 + draw.uniform(0, 6))
    return np.select(
        [y >= MUSCLE_FROM_PX + 0.6 * wave, (y >= FAT_TO_PX + wave) & (y < GLAND_TO_PX + 1.3 * wave), y < SKIN_PX, y < FAT_TO_PX + wave],
        [MUSCLE_ECHO, GLAND_ECHO, SKIN_ECHO, FAT_ECHO],
        OTHER_ECHO,
    )


def _septa(echo: Grid, y: Grid, x: Grid, draw: np.random.Generator) -> Grid:
    """Thin bright strands across the layers."""
    rows_px, columns_px = echo.shape
    for _ in range(SEPTUM_COUNT):
        level, slope = draw.uniform(20, rows_px - 20), draw.uniform(-0.2, 0.2)
        strand = level + slope * (x - columns_px / 2) + 5 * np.sin(x / 25)
        echo = np.where(np.abs(y - strand) < SEPTUM_HALF_PX, SEPTUM_ECHO, echo)
    return echo


def _lesion(echo: Grid, y: Grid, x: Grid, *, irregularity: float, draw: np.random.Generator) -> tuple[Grid, MaskImage]:
    """A dark ellipse, its edge waved by `irregularity`, and what it does to the sound behind it."""
    centre_y, centre_x = draw.uniform(150, 220), draw.uniform(110, 210)
    half_y, half_x = draw.uniform(26, 42), draw.uniform(38, 62)
    down, across = (y - centre_y) / half_y, (x - centre_x) / half_x
    angle = np.arctan2(down, across)
    spikes = 0.5 * np.sin(5 * angle + draw.uniform(0, 6)) + 0.5 * np.sin(9 * angle + draw.uniform(0, 6))
    mask: MaskImage = np.hypot(down, across) < 1 + irregularity * spikes
    behind = (np.abs(across) < 0.8) & (down > 1)
    change = ENHANCED if irregularity < SMOOTH_BELOW else SHADOWED
    return np.where(behind, echo * change, np.where(mask, LESION_ECHO, echo)), mask


def _b_mode(echo: Grid, depth: Grid, draw: np.random.Generator) -> ByteImage:
    """Speckle from random scatterers, loss with depth, logarithmic compression."""
    real, imaginary = (gaussian_filter(draw.normal(size=echo.shape), (1.0, 1.8)) for _ in range(2))
    envelope = np.hypot(real, imaginary)
    decibel = 20 * np.log10(envelope / envelope.mean() * echo * np.exp(-0.6 * depth) + 1e-3)
    grey: ByteImage = (np.clip((decibel + DYNAMIC_RANGE_DB) / DYNAMIC_RANGE_DB, 0, 1) * 255).astype(np.uint8)
    return grey
