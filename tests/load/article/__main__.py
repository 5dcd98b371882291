"""`make article`: the article's own load on the real pipeline with emulated devices, ten times as fast.

A Poisson load, open: when each image comes was settled beforehand, however slow the answers are. First the set-up that the article
starts from, which takes one image after another, then the pipeline under 38, 124 and 330 images a minute. Prints one table, writes
build/article.json, ends with 1 where a bar is not reached. All times in the table are the article's: divide by ten for the clock's.
"""

import argparse
import os
import sys
import time
from pathlib import Path

from rich.console import Console

from tests.faults.servers import running_servers
from tests.load.article.pipeline import Pipeline, Seen, running_pipeline
from tests.load.article.scale import DEADLINE_S, PHASES, SCALE, SERIAL, Phase
from tests.load.article.serial import serve_one_by_one
from tests.load.figures import Figure, percentile, shortfalls, show, write

REPORT = Path(__file__).resolve().parents[3] / "build" / "article.json"
SECONDS = 60.0
"""Of the clock, for each load: ten minutes of the article's."""
WARM_S = 8.0
SAY_EVERY_S = 10.0
LATE_S = 0.05
"""Where the load itself came later than this (99 in 100 cases), this machine was too busy to be measured."""


class Teller:
    """Says what is going on, not too often."""

    def __init__(self, console: Console) -> None:
        self._console, self._begun, self._said_at, self._subject = console, time.monotonic(), -SAY_EVERY_S, ""

    def __call__(self, doing: str) -> None:
        """Say it if its subject is new, or if it is long ago."""
        subject, now = doing.partition(":")[0], time.monotonic()
        if subject != self._subject or now - self._said_at >= SAY_EVERY_S:
            self._subject, self._said_at = subject, now
            self._console.print(f"[dim]{now - self._begun:4.0f} s  {doing}[/dim]")


def serial_figures(waits_s: list[float]) -> list[Figure]:
    """What became of the set-up without batches."""
    section, half = f"one by one, {SERIAL.name}", len(waits_s) // 2
    late = sum(wait > DEADLINE_S for wait in waits_s)
    return [
        Figure(section, "images", len(waits_s)),
        Figure(section, "P99, first half", SCALE * percentile(waits_s[:half], 99), "s"),
        Figure(section, "P99, second half", SCALE * percentile(waits_s[half:], 99), "s"),
        Figure(section, "not answered in 30 s", 100 * late / len(waits_s), "%"),
    ]


def phase_figures(phase: Phase, seen: Seen) -> list[Figure]:
    """What became of one load of the pipeline."""
    section, waits_s = f"secondread, {phase.name}", seen.waits_s
    is_judged = phase.p99_s is not None
    return [
        Figure(section, "images", seen.cases, least=1),
        Figure(section, "P50", SCALE * percentile(waits_s, 50), "s"),
        Figure(section, "P95", SCALE * percentile(waits_s, 95), "s"),
        Figure(section, "P99", SCALE * percentile(waits_s, 99), "s", most=phase.p99_s),
        Figure(section, "time-outs", seen.timed_out, most=0 if is_judged else None),
        Figure(section, "never completed", seen.incomplete, most=0 if is_judged else None),
        Figure(section, "images a batch, mean", sum(seen.batch_images) / max(1, len(seen.batch_images))),
        Figure(section, "the load itself came late by (P99)", percentile(seen.lateness_s, 99), "s, not scaled"),
    ]


def measure(pipeline: Pipeline, seconds: float) -> tuple[list[Figure], dict[str, dict[str, int]]]:
    """Carry every load; return the figures, and why batches fired."""
    pipeline.carry("warm-up", Phase(124, None), WARM_S, seed=99)
    figures: list[Figure] = []
    reasons: dict[str, dict[str, int]] = {}
    for number, phase in enumerate(PHASES):
        seen = pipeline.carry(f"phase-{number}", phase, seconds, seed=number + 1)
        figures += phase_figures(phase, seen)
        reasons[phase.name] = dict(seen.reasons)
    return figures, reasons


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(prog="python -m tests.load.article", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of the clock, for each load")
    asked = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    teller = Teller(console)
    teller(f"one by one: {SERIAL.name} for {asked.seconds:.0f} s")
    figures = serial_figures(serve_one_by_one(SERIAL, asked.seconds, seed=1))
    with running_servers() as servers, running_pipeline(servers, teller) as pipeline:
        found, reasons = measure(pipeline, asked.seconds)
    figures += found
    late = [figure for figure in figures if figure.what.startswith("the load itself") and figure.value > LATE_S]
    for figure in late:
        console.print(f"{figure.section}: the load came late; this machine was too busy for its figures to say much.", style="yellow")
    command = f"python -m tests.load.article --seconds {asked.seconds:g}"
    write(REPORT, figures, command=command, cores=os.cpu_count(), scale=SCALE, batches_fired=reasons)
    show(f"The article's load, in the article's time ({SCALE:.0f} x the clock's); {os.cpu_count()} cores", figures, console)
    return 1 if shortfalls(figures) else 0


if __name__ == "__main__":
    sys.exit(main())
