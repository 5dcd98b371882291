"""The figures as a picture: for each scenario the share of missed answers, rule by rule. An SVG of our own making."""

from collections.abc import Iterator, Sequence
from html import escape

from pipeline.batching.simulation.scenarios import OURS, Outcome

PANEL_PX, LABEL_PX, BAR_PX, GAP_PX, HEAD_PX, COLUMNS = 190, 200, 15, 22, 46, 4
OUR_COLOUR, THEIR_COLOUR, BOUND_COLOUR = "#0f766e", "#94a3b8", "#b91c1c"
STYLE = "text{font:11px system-ui,sans-serif;fill:#334155}.head{font-weight:600}.ours{font-weight:600;fill:#0f766e}"


def chart(outcomes: Sequence[Outcome]) -> str:
    """Draw the scenarios that all rules were played in; a red line is the share that no rule avoids."""
    shown = [outcome for outcome in outcomes if len(outcome.figures) > 2]
    names = list(shown[0].figures) if shown else []
    rows = [shown[first : first + COLUMNS] for first in range(0, len(shown), COLUMNS)]
    row_px = HEAD_PX + len(names) * BAR_PX + GAP_PX
    width, height = LABEL_PX + COLUMNS * (PANEL_PX + GAP_PX), GAP_PX + len(rows) * row_px
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<style>{STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for number, row in enumerate(rows):
        top = GAP_PX + number * row_px
        parts += _labels(names, top + HEAD_PX)
        for column, outcome in enumerate(row):
            parts += _panel(outcome, LABEL_PX + column * (PANEL_PX + GAP_PX), top)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _labels(names: Sequence[str], top: int) -> Iterator[str]:
    for place, name in enumerate(names):
        yield _text(LABEL_PX - 8, top + place * BAR_PX + 11, name, css="ours" if name == OURS else "", anchor="end")


def _panel(outcome: Outcome, left: int, top: int) -> Iterator[str]:
    """One scenario: a bar of 0 to 100 % for each rule."""
    room = PANEL_PX - 40
    yield _text(left, top + 14, outcome.scenario.name, css="head")
    yield _text(left, top + 30, "missed answers, %")
    for place, (name, figures) in enumerate(outcome.figures.items()):
        y, length = top + HEAD_PX + place * BAR_PX, room * figures.missed_percent / 100
        colour = OUR_COLOUR if name == OURS else THEIR_COLOUR
        yield f'<rect x="{left}" y="{y}" width="{max(length, 1):.1f}" height="{BAR_PX - 4}" fill="{colour}"/>'
        yield _text(left + length + 5, y + 10, f"{figures.missed_percent:.1f}")
    x = left + room * outcome.least_missed_percent / 100
    bottom = top + HEAD_PX + len(outcome.figures) * BAR_PX
    yield f'<line x1="{x:.1f}" y1="{top + HEAD_PX - 4}" x2="{x:.1f}" y2="{bottom}" stroke="{BOUND_COLOUR}" stroke-dasharray="3 2"/>'


def _text(x: float, y: float, words: str, *, css: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{css}" text-anchor="{anchor}">{escape(words)}</text>'
