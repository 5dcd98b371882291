"""Pictures of a reading: the image with what was found drawn in, and the probability map. No patient data."""

import math
import textwrap
from functools import lru_cache
from typing import Final

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from pipeline.imaging.arrays import ByteImage, FloatImage
from pipeline.imaging.components import Component, Points
from pipeline.imaging.png import write_png

NOTICE = "Not for clinical use."
"""Burnt into every overlay."""

OUTLINE_RGB: Final = (230, 159, 0)
"""Orange of the Okabe-Ito palette, told apart from grey with every kind of colour vision."""

OUTLINE = 255
BLACK = 0
WHITEST = 254
"""The last grey. Palette entries below it are the display values themselves; this one stands for the two lightest, as white."""

STRIP_LEVEL = 40
"""A grey that sets the footer apart from a black background."""
MIN_WIDTH_PX = 240
"""Narrower images get a black margin on the right, so that the footer can be read."""
ROWS_AT_ONCE = 64
LINE_STEP_PX = 400
"""The line is one pixel wide up to this long side, two up to twice of it, and so on."""


def _palette() -> bytes:
    colours = [(grey, grey, grey) for grey in (*range(WHITEST), 255)] + [OUTLINE_RGB]
    return bytes(channel for colour in colours for channel in colour)


PALETTE: Final = _palette()


def draw_overlay(display: ByteImage, components: tuple[Component, ...], *, headline: str, model: str, first_number: int = 1) -> bytes:
    """Draw regions, their numbers and a footer; the image keeps its size and its top left corner.

    Parameters
    ----------
    display
        (row, column), uint8, 0 black: the image as it was shown to the model.
    components
        The regions to outline, in the order of their numbers.
    headline
        What the reading says of the image; the footer opens with it and goes on with `NOTICE`.
    model
        Name and version, the end of the footer.
    first_number
        The number of the first region; the others follow.

    Returns
    -------
    PNG bytes with a palette. The footer is a strip below the image and hides none of it.
    """
    rows_px, columns_px = display.shape
    strip = _footer(f"{headline} {NOTICE} {model}", max(columns_px, MIN_WIDTH_PX))
    levels = np.zeros((rows_px + strip.shape[0], strip.shape[1]), dtype=np.uint8)
    np.minimum(display, WHITEST, out=levels[:rows_px, :columns_px])
    levels[rows_px:] = strip
    _draw_outlines(levels[:rows_px, :columns_px], components)
    if components:
        picture = Image.fromarray(levels)
        _draw_numbers(picture, components, first_number=first_number, room_px=(rows_px, columns_px))
        levels = np.asarray(picture)
    # Stored, not deflated: speckle hardly shrinks, and the search would cost more than all the drawing.
    return write_png(levels, palette=PALETTE, is_noisy=True)


def probability_png(probability: FloatImage) -> bytes:
    """Write a map, (row, column), float32, 0 to 1, as an 8-bit grey PNG: 255 is certain."""
    levels = np.empty(probability.shape, np.uint8)
    # Some rows at a time: what a whole image needs in between does not fit the nearest cache.
    for top in range(0, len(probability), ROWS_AT_ONCE):
        rows = slice(top, top + ROWS_AT_ONCE)
        levels[rows] = probability[rows] * np.float32(255) + np.float32(0.5)
    return write_png(levels)


def _draw_outlines(levels: ByteImage, components: tuple[Component, ...]) -> None:
    """Draw each rim in colour on a wider black line, so that it stands out on white as well."""
    line_px = math.ceil(max(levels.shape) / LINE_STEP_PX)
    for component in components:
        _stroke(levels, component.rim_px, line_px + 2, BLACK)
    for component in components:
        _stroke(levels, component.rim_px, line_px, OUTLINE)


def _stroke(levels: ByteImage, points: Points, line_px: int, entry: int) -> None:
    """Set a square of pixels round each point, within the image."""
    last_row, last_column = levels.shape[0] - 1, levels.shape[1] - 1
    offsets = range(-((line_px - 1) // 2), line_px // 2 + 1)
    for down in offsets:
        rows = np.clip(points[:, 0] + down, 0, last_row)
        for right in offsets:
            levels[rows, np.clip(points[:, 1] + right, 0, last_column)] = entry


def _draw_numbers(picture: Image.Image, components: tuple[Component, ...], *, first_number: int, room_px: tuple[int, int]) -> None:
    """Write each number right of its region; left of it where the image ends."""
    rows_px, columns_px = room_px
    font = _font(max(12, max(room_px) // 32))
    draw = ImageDraw.Draw(picture)
    draw.fontmode = "1"  # a soft edge would be entries of the palette that mean other greys
    for number, component in enumerate(components, start=first_number):
        text = str(number)
        _, _, width_px, height_px = (int(edge) for edge in draw.textbbox((0, 0), text, font=font, stroke_width=1))
        gap_px = height_px // 3
        left_px = component.left_px + component.mask.shape[1] + gap_px
        if left_px + width_px > columns_px:
            left_px = max(0, component.left_px - gap_px - width_px)
        top_px = max(0, min(component.top_px, rows_px - height_px))
        draw.text((left_px, top_px), text, fill=OUTLINE, font=font, stroke_width=1, stroke_fill=BLACK)


@lru_cache(maxsize=16)
def _footer(text: str, width_px: int) -> ByteImage:
    """The strip below the image, in palette entries. The text is wrapped, never cut."""
    size_px = max(12, width_px // 44)
    font = _font(size_px)
    margin_px = size_px // 2
    # A line of capitals and digits is wider than the average; the reserve keeps it inside.
    widest_line = int((width_px - 2 * margin_px) / (font.getlength(text) / len(text) * 1.2))
    lines = textwrap.wrap(text, widest_line, break_on_hyphens=False)
    line_px = size_px * 4 // 3
    strip = Image.new("L", (width_px, line_px * len(lines) + margin_px), STRIP_LEVEL)
    draw = ImageDraw.Draw(strip)
    for index, line in enumerate(lines):
        draw.text((margin_px, margin_px // 2 + index * line_px), line, fill=255, font=font)
    levels: ByteImage = np.minimum(np.asarray(strip), WHITEST)
    levels.setflags(write=False)
    return levels


@lru_cache(maxsize=16)
def _font(size_px: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size_px)
