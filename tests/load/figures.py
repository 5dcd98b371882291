"""Figures of a measurement, each with its bar where it has one: one table, one file, one verdict."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

PERCENT = 100


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value."""

    section: str
    what: str
    value: float
    unit: str = ""
    least: float | None = None
    most: float | None = None

    @property
    def is_met(self) -> bool:
        """Whether its bar is reached; a figure without one is not judged. What is no number reaches nothing."""
        above = self.least is None or self.value >= self.least
        return above and (self.most is None or self.value <= self.most)

    @property
    def bar(self) -> str:
        """Its bar in words."""
        if self.least is not None:
            return f">= {self.least:g}"
        return "" if self.most is None else f"<= {self.most:g}"

    @property
    def shortfall(self) -> str:
        """What is said where the bar is not reached."""
        return f"{self.section}: {self.what} is {_short(self.value)} {self.unit}".rstrip() + f", bar {self.bar}"


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that so many of a hundred do not exceed; not a number where there is none."""
    rising = sorted(values)
    return rising[min(len(rising) - 1, len(rising) * percent // PERCENT)] if rising else float("nan")


def shortfalls(figures: Sequence[Figure]) -> list[str]:
    """What is below its bar, in sentences."""
    return [figure.shortfall for figure in figures if not figure.is_met]


def show(title: str, figures: Sequence[Figure], console: Console) -> None:
    """Print what falls short, and the table, which comes last."""
    for sentence in shortfalls(figures):
        console.print(sentence, style="bold red")
    table = Table(title=title, title_justify="left")
    for heading in ("section", "figure", "measured", "bar", ""):
        table.add_column(heading, justify="right" if heading in ("measured", "bar") else "left")
    before = None
    for figure in figures:
        if before not in (None, figure.section):
            table.add_section()
        verdict = "" if not figure.bar else "[green]met[/green]" if figure.is_met else "[bold red]short[/bold red]"
        name = figure.section if figure.section != before else ""
        table.add_row(name, figure.what, f"{_short(figure.value)} {figure.unit}".rstrip(), figure.bar, verdict)
        before = figure.section
    console.print(table)


def write(path: Path, figures: Sequence[Figure], *, command: str, **facts: Any) -> None:
    """Write the same as JSON, beside whatever else is known."""
    path.parent.mkdir(exist_ok=True)
    rows = [asdict(figure) | {"is_met": figure.is_met if figure.bar else None} for figure in figures]
    found = {"command": command, "shortfalls": shortfalls(figures), "figures": rows, **facts}
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= PERCENT or float(value).is_integer() else f"{value:.3g}"
