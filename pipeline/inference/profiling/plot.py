"""The batch matrix as a picture: latency with its spread, and images a second, by batch size. Plain SVG, no library."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from schemas.performance_card import BatchCost, PerformanceCard

WIDTH_PX, HEIGHT_PX = 860, 380
LEFT_PX, TOP_PX, PANEL_WIDTH_PX, PANEL_HEIGHT_PX, GAP_PX = 70, 70, 330, 240, 100
TICKS = 4
INK, LINE, FAINT, KNEE = "#1f2933", "#2563a8", "#c9d1d9", "#b45309"


@dataclass(frozen=True, slots=True)
class _Panel:
    """One diagram: batch sizes on a logarithmic axis, values from 0 up."""

    left_px: float
    title: str
    sizes: Sequence[int]
    most: float

    def x(self, images: int) -> float:
        low, high = math.log2(self.sizes[0]), math.log2(self.sizes[-1])
        return self.left_px + PANEL_WIDTH_PX * ((math.log2(images) - low) / (high - low) if high > low else 0.5)

    def y(self, value: float) -> float:
        return TOP_PX + PANEL_HEIGHT_PX * (1 - value / self.most)


def draw(card: PerformanceCard) -> str:
    """Draw a performance card's batch matrix.

    Returns
    -------
    An SVG document.
    """
    sizes = [batch.images for batch in card.batches]
    longest_ms = _round_up(1000 * max(batch.p90_s for batch in card.batches))
    latency = _Panel(LEFT_PX, "latency of a batch, ms (median, P10 to P90)", sizes, longest_ms)
    most = _round_up(max(batch.images_per_s for batch in card.batches))
    rate = _Panel(LEFT_PX + PANEL_WIDTH_PX + GAP_PX, "images a second", sizes, most)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH_PX} {HEIGHT_PX}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH_PX}" height="{HEIGHT_PX}" fill="white"/>',
        _text(LEFT_PX, 26, f"{card.model} on {card.device_name} ({card.device}), {card.bucket} px", size=15),
        *_frame(latency, card.knee),
        *_spreads(latency, card.batches),
        *_curve(latency, card.batches, lambda batch: 1000 * batch.median_s),
        *_frame(rate, card.knee),
        *_curve(rate, card.batches, lambda batch: batch.images_per_s),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _frame(panel: _Panel, knee: int) -> Iterator[str]:
    yield _text(panel.left_px, TOP_PX - 14, panel.title, size=13)
    for tick in range(TICKS + 1):
        value = panel.most * tick / TICKS
        yield _line(panel.left_px, panel.y(value), panel.left_px + PANEL_WIDTH_PX, panel.y(value), FAINT)
        yield _text(panel.left_px - 8, panel.y(value) + 4, f"{value:g}", anchor="end")
    for size in panel.sizes:
        yield _text(panel.x(size), TOP_PX + PANEL_HEIGHT_PX + 18, str(size), anchor="middle")
    yield _text(panel.left_px + PANEL_WIDTH_PX / 2, TOP_PX + PANEL_HEIGHT_PX + 38, "images in the batch", anchor="middle")
    yield _line(panel.x(knee), TOP_PX, panel.x(knee), TOP_PX + PANEL_HEIGHT_PX, KNEE, dash="4 3")
    yield _text(panel.x(knee) + 5, TOP_PX + PANEL_HEIGHT_PX - 8, f"knee: {knee}", colour=KNEE)


def _curve(panel: _Panel, batches: Sequence[BatchCost], value: Callable[[BatchCost], float]) -> Iterator[str]:
    points = [(panel.x(batch.images), panel.y(value(batch))) for batch in batches]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    yield f'<polyline points="{path}" fill="none" stroke="{LINE}" stroke-width="2"/>'
    for x, y in points:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{LINE}"/>'


def _spreads(panel: _Panel, batches: Sequence[BatchCost]) -> Iterator[str]:
    for batch in batches:
        yield _line(panel.x(batch.images), panel.y(1000 * batch.p10_s), panel.x(batch.images), panel.y(1000 * batch.p90_s), LINE)


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, *, dash: str = "") -> str:  # noqa: PLR0913 - two points and a look
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{dashes}/>'


def _text(x: float, y: float, text: str, *, size: int = 12, anchor: str = "start", colour: str = INK) -> str:  # noqa: PLR0913 - a place and a look
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'


def _round_up(value: float) -> float:
    """The next of 1, 2, 4, 8 times a power of ten: its quarters are short numbers."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 8, 10) if step * power >= value)
