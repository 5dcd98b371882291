"""`python -m tests.load.hot_reload`: what a reload costs the cases that are on their way, under an open load.

One deployment, as `secondread up` starts it, with the product's own deadline; cases arrive at moments that were drawn
beforehand, however slow the answers are. Each round has three windows:

- *before*: nothing happens;
- *during*: from an operator's switch to the other version (load, warm-up at five batch sizes, golden set, switch) until five
  seconds after the switch is in force, when the old version has long finished its line;
- *after*: the new version alone; the old one is let go meanwhile, with its memory.

A case counts to the window in which it was accepted; its time is the ledger's, from acceptance to its end. The windows of all
rounds are pooled, since the machine's speed changes within a minute.

Bars: no case fails, none is answered preliminarily, each was read by the version that it was prepared for; P99 *during* is at
most (1.10 + s) times P99 *before*, where s is the processor time that the loading thread took during the windows, as a share of
all cores over that time; P99 *after* is at most 1.10 times P99 *before*. Writes build/hot_reload.json, exits non-zero where
a bar is missed.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pipeline.dicom.phantom import PhantomStudy, phantom_instance
from pipeline.imaging.phantom import phantom
from pipeline.inference.seeded import write_seeded_model
from pipeline.inference.shelf import CardShelf
from pipeline.persistence.ledger.engine import open_ledger
from tests.acceptance.running import Deployment, eventually, running_deployment
from tests.faults.open_load import OpenLoad, Sent
from tests.load.clients import multipart
from workers.switching import Operator, Wish

ROOT = Path(__file__).resolve().parents[2]
STEP = 0.10
NAME, SIDE_PX, IMAGE_PX, IMAGES = "seeded-unet", 256, 512, 16
VERSIONS = (f"1.{SIDE_PX}", f"2.{SIDE_PX}")
SETTLE_S = 5.0
LEAD_IN_S = 10.0
ENDS_WITHIN_S = 90.0
WINDOWS = ("before", "during", "after")


@dataclass(slots=True)
class Measured:
    """What was seen, window by window."""

    latencies_s: dict[str, list[float]] = field(default_factory=lambda: {window: [] for window in WINDOWS})
    spans: list[tuple[str, datetime, datetime]] = field(default_factory=list)
    reload_s: list[float] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)
    versions: Counter[str] = field(default_factory=Counter)
    foreign_count: int = 0
    """Cases that were read by another version than they were prepared for."""
    lag_p99_s: float = 0.0
    load_cpu_s: float = 0.0

    @property
    def during_s(self) -> float:
        """How long all windows *during* were together."""
        return sum((end - begin).total_seconds() for window, begin, end in self.spans if window == "during")

    @property
    def share(self) -> float:
        """The loading thread's share of all cores in these windows."""
        return self.load_cpu_s / self.during_s / (os.cpu_count() or 1)

    def quantile_s(self, window: str, level: int) -> float:
        """A percentile of a window's latencies."""
        return statistics.quantiles(self.latencies_s[window], n=100)[level - 1]

    def step(self, window: str) -> float:
        """How much P99 is above that of the windows *before*, as a share of it."""
        return self.quantile_s(window, 99) / self.quantile_s("before", 99) - 1

    def missed(self) -> list[str]:
        """The bars that were missed, in words."""
        bad = {end: count for end, count in self.ends.items() if end != "completed"}
        found = [f"not completed, or not in time: {bad}"] if bad else []
        if self.foreign_count:
            found.append(f"{self.foreign_count} cases were read by another version than they were prepared for")
        allowed = {"during": STEP + self.share, "after": STEP}
        found += [
            f"P99 {window} is {self.step(window):+.1%}; {most:+.1%} is allowed"
            for window, most in allowed.items()
            if self.step(window) > most
        ]
        return found


def measure(deployment: Deployment, models_dir: Path, asked: argparse.Namespace) -> Measured:
    """Load the deployment and reload it, round by round."""
    measured = Measured()
    images = [phantom(seed, rows_px=IMAGE_PX, columns_px=IMAGE_PX)[0] for seed in range(IMAGES)]
    bodies = [multipart(phantom_instance(image, PhantomStudy(name=f"reload-{number}"))) for number, image in enumerate(images)]
    ledger = open_ledger(deployment.environment["SECONDREAD_DATABASE_URL"], connections=1)
    operator = Operator(ledger, CardShelf(models_dir), actor="hot_reload")
    load = OpenLoad(deployment.access.url, deployment.access.api_key, bodies, rate=asked.rate)
    with load.running() as sent:
        _pause(LEAD_IN_S)
        for number in range(asked.rounds):
            _window(measured, "before", asked.window)
            begin = datetime.now(UTC)
            # The newest serves at first.
            operator.switch(Wish(NAME, VERSIONS[number % 2]), lambda _line: None)
            measured.reload_s.append((datetime.now(UTC) - begin).total_seconds())
            _pause(SETTLE_S)
            measured.spans.append(("during", begin, datetime.now(UTC)))
            _window(measured, "after", asked.window)
    ledger.close()
    _read(deployment, measured, sent)
    return measured


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)


def _window(measured: Measured, window: str, seconds: float) -> None:
    begin = datetime.now(UTC)
    _pause(seconds)
    measured.spans.append((window, begin, datetime.now(UTC)))


def _read(deployment: Deployment, measured: Measured, sent: Sent) -> None:
    """Wait for the last answers, and sort the cases by window."""
    ids = [case_id.hex for case_id in sent.promised]
    still_open = "SELECT count(*) FROM cases WHERE id = ANY(%s::uuid[]) AND ended_at IS NULL"
    eventually(lambda: deployment.rows(still_open, ids) == [(0,)], within_s=ENDS_WITHIN_S)
    rows = deployment.rows(
        "SELECT accepted_at, ended_at, state, result_version, work->'prepared'->>'model', work->'inferred'->>'model'"
        " FROM cases WHERE id = ANY(%s::uuid[])",
        ids,
    )
    measured.ends.update({"refused at the door": sent.refused, "cut off": sent.unknown})
    measured.ends = +measured.ends
    for accepted_at, ended_at, state, result_version, prepared, inferred in rows:
        measured.ends["answered preliminarily" if result_version > 1 else state] += 1
        measured.versions[inferred] += 1
        measured.foreign_count += prepared != inferred
        window = next((name for name, begin, end in measured.spans if begin <= accepted_at < end), None)
        if window is not None and ended_at is not None:
            measured.latencies_s[window].append((ended_at - accepted_at) / timedelta(seconds=1))
    measured.lag_p99_s = sent.lag_p99_s()
    lines = [json.loads(line) for line in (deployment.logs / "inference-1.log").read_text().splitlines() if '"model_loaded"' in line]
    # The first was loaded before the first case.
    measured.load_cpu_s = sum(line["cpu_s"] for line in lines[1:])


def show(measured: Measured, asked: argparse.Namespace, console: Console) -> None:
    """Print the table."""
    table = Table(title=f"{asked.rounds} reloads at {asked.rate:g} cases a second, {os.cpu_count()} cores")
    for heading in ("window", "cases", "P50 ms", "P99 ms", "P99 step", "allowed"):
        table.add_column(heading, justify="left" if heading == "window" else "right")
    allowed = {"before": "", "during": f"{STEP + measured.share:+.1%}", "after": f"{STEP:+.1%}"}
    for window in WINDOWS:
        p50_s, p99_s = (measured.quantile_s(window, level) for level in (50, 99))
        cells = (f"{1000 * p50_s:.0f}", f"{1000 * p99_s:.0f}", f"{measured.step(window):+.1%}", allowed[window])
        table.add_row(window, str(len(measured.latencies_s[window])), *cells)
    console.print(table)
    console.print(
        f"A reload took {statistics.median(measured.reload_s):.1f} s (median); its thread had {measured.share:.1%} of all cores. "
        f"Ends: {dict(measured.ends)}. Versions: {dict(measured.versions)}. Generator late by {1000 * measured.lag_p99_s:.0f} ms (P99)."
    )


def write(measured: Measured, asked: argparse.Namespace) -> None:
    """Write the same figures to build/hot_reload.json."""
    windows = {
        window: {
            "cases": len(measured.latencies_s[window]),
            **{f"p{level}_ms": 1000 * measured.quantile_s(window, level) for level in (50, 95, 99)},
            "p99_step": measured.step(window),
        }
        for window in WINDOWS
    }
    figures: dict[str, Any] = {
        "rate": asked.rate,
        "rounds": asked.rounds,
        "windows": windows,
        "warm_up_share": measured.share,
        "reload_s": measured.reload_s,
        "ends": dict(measured.ends),
        "versions": dict(measured.versions),
        "missed": measured.missed(),
    }
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build" / "hot_reload.json").write_text(json.dumps(figures, indent=2) + "\n")


def main() -> None:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description="What a reload costs the cases that are on their way.")
    parser.add_argument("--rate", type=float, default=10.0, help="cases a second")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--window", type=float, default=20.0, help="seconds of each window before and after")
    asked = parser.parse_args()
    console = Console(width=110)
    with tempfile.TemporaryDirectory(prefix="secondread-reload-") as folder:
        models_dir = Path(folder)
        models_dir.chmod(0o755)
        for seed, version in enumerate(VERSIONS, start=1):
            write_seeded_model(models_dir / f"version-{version}", seed=seed, side_px=SIDE_PX)
        with running_deployment(
            SECONDREAD_MODELS_DIR=folder, SECONDREAD_DEADLINE_S="30", SECONDREAD_PRELIMINARY_AFTER_S="10", SECONDREAD_LOG_LEVEL="info"
        ) as deployment:
            measured = measure(deployment, models_dir, asked)
    show(measured, asked, console)
    write(measured, asked)
    if missed := measured.missed():
        console.print("Missed: " + "; ".join(missed))
        sys.exit(1)
    console.print("All bars are kept.")


if __name__ == "__main__":
    main()
