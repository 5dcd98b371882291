"""`make bench`: secondread beside the bare loop and beside its own bars, section by section, in one table.

`--only throughput` is its first form: images a second and CPU beside the bare loop. Writes build/bench.json; ends with 1 where any
bar is not reached.
"""

import argparse
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from tests.load.bench.device import measure_device
from tests.load.bench.goodput import measure_goodput
from tests.load.bench.ground import CORES, ROOT, Ground
from tests.load.bench.latency import measure_latency
from tests.load.bench.ratio import measure_ratio
from tests.load.bench.resources import measure_idle, measure_memory, measure_wire
from tests.load.figures import Figure, shortfalls, show, write

REPORT = ROOT / "build" / "bench.json"
THROUGHPUT = "throughput"
SECTIONS: dict[str, Callable[[Ground], list[Figure]]] = {
    "latency": measure_latency,
    "goodput": measure_goodput,
    "device": measure_device,
    "memory": measure_memory,
    "redis": measure_wire,
    "idle": measure_idle,
}
"""Beside the throughput, which has tables of its own."""


def main() -> int:
    """Measure, print, judge."""
    known = [THROUGHPUT, *SECTIONS]
    parser = argparse.ArgumentParser(prog="python -m tests.load.bench", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=known, default=known, metavar="SECTION", help=f"some of {', '.join(known)}")
    asked = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    begun = time.monotonic()
    figures: list[Figure] = []
    facts: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="secondread-bench-") as folder:
        ground = Ground(Path(folder), lambda doing: console.print(f"[dim]{time.monotonic() - begun:4.0f} s  {doing} ...[/dim]"))
        if THROUGHPUT in asked.only:
            found, facts = measure_ratio(ground, console)
            figures += found
        for name in SECTIONS:
            if name in asked.only:
                figures += SECTIONS[name](ground)
    write(REPORT, figures, command=f"python -m tests.load.bench {shlex.join(sys.argv[1:])}".rstrip(), cores=CORES, models=facts)
    show(f"secondread on {CORES} cores, {time.monotonic() - begun:.0f} s", figures, console)
    return 1 if shortfalls(figures) else 0


if __name__ == "__main__":
    sys.exit(main())
