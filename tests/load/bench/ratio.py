"""Images a second beside the bare loop, interleaved in one run, with the CPU that every process takes.

(a) the bare in-process loop at batch 1; (b) the bare loop at its best batch, decoding overlapped, a process a core: the limit
of the machine; (c) secondread end to end, 32 cases in flight over HTTP.
"""

import statistics
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from pipeline.inference.card import SHIPPED_MODELS
from tests.acceptance.running import Deployment
from tests.load.bench.ground import CORES, IMAGE_PX, IN_FLIGHT, LEAD_IN_S, Bodies, Ground, bodies_of, clients, product, warm_up
from tests.load.figures import Figure, percentile

BARS = {"M1": 0.55, "M3": 0.78}
"""(c)/(b) that must be reached on the bench model, by milestone."""
ROUNDS = 9
SECONDS = 5.0
"""Many short rounds: the machine's speed changes within a minute, and neighbours in time share it."""
PRODUCT_SECONDS = 2 * SECONDS
"""Answers come by the batch: in five seconds one batch more or less is a tenth."""
SHIPPED_ROUNDS = 3
"""Beside it, not judged."""


@dataclass
class Speed:
    """What was measured of one contender, round by round."""

    images_per_s: list[float] = field(default_factory=list)
    cpu_ms_per_image: list[float] = field(default_factory=list)

    def add(self, images_per_s: float, cpu_ms: float) -> None:
        """Keep one round."""
        self.images_per_s.append(images_per_s)
        self.cpu_ms_per_image.append(cpu_ms)

    @property
    def rate(self) -> float:
        """Median images a second."""
        return statistics.median(self.images_per_s)

    @property
    def cpu_ms(self) -> float:
        """Median CPU milliseconds an image."""
        return statistics.median(self.cpu_ms_per_image)


@dataclass
class Contest:
    """All figures of one model."""

    name: str
    first: Speed = field(default_factory=Speed)
    limit: Speed = field(default_factory=Speed)
    product: Speed = field(default_factory=Speed)
    best_batch: int = 0
    generator_cpu_ms: list[float] = field(default_factory=list)
    parts: list[dict[str, float]] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def ratio(self) -> float:
        """(c)/(b): the median of the rounds' own ratios."""
        return statistics.median(ours / bare for ours, bare in zip(self.product.images_per_s, self.limit.images_per_s, strict=True))

    @property
    def rows(self) -> tuple[tuple[str, Speed], ...]:
        """The contenders."""
        return (
            ("(a) bare loop, batch 1", self.first),
            (f"(b) bare loop, batch {self.best_batch}, overlapped", self.limit),
            ("(c) secondread, end to end", self.product),
        )


def measure_ratio(ground: Ground, console: Console) -> tuple[list[Figure], dict[str, Any]]:
    """Measure both models and show the tables; return what is judged, and all figures."""
    contests = [
        run_contest("bench model", ground, ground.model, rounds=ROUNDS),
        run_contest("shipped model", ground, next(path for path in SHIPPED_MODELS.iterdir() if path.is_dir()), rounds=SHIPPED_ROUNDS),
    ]
    show_contests(contests, console)
    judged = contests[0]
    incomplete = sum(count for outcome, count in judged.outcomes.items() if outcome != "completed")
    figures = [Figure("throughput", f"(c)/(b), bar of {milestone}", judged.ratio, least=bar) for milestone, bar in BARS.items()]
    figures += [Figure("throughput", f"images/s, {label}", speed.rate, "/s") for label, speed in judged.rows]
    return [*figures, Figure("throughput", "cases that were not completed", incomplete, most=0)], _facts(contests)


def run_contest(name: str, ground: Ground, model: Path, *, rounds: int) -> Contest:
    """Measure (a), (b) and (c) in turn, several times."""
    contest = Contest(name, best_batch=ground.best_batch if model == ground.model else ground.best_batch_of(model))
    bodies = bodies_of(ground.images)
    with product(model.parent) as deployment:
        warm_up(deployment, bodies)
        for number in range(rounds):
            ground.tell(f"{name}: round {number + 1} of {rounds}")
            once = ground.bare(model, batch=1, processes=1, seconds=SECONDS)
            contest.first.add(once["images_per_s"], once["cpu_ms_per_image"])
            best = ground.bare(model, batch=contest.best_batch, processes=CORES, seconds=SECONDS)
            contest.limit.add(best["images_per_s"], best["cpu_ms_per_image"])
            _measure_product(contest, deployment, bodies)
    return contest


def _measure_product(contest: Contest, deployment: Deployment, bodies: Bodies) -> None:
    """Measure while every client has a case in flight: neither the first cases' way in nor the last ones' way out counts."""
    with clients(deployment, bodies).loaded() as answered:
        time.sleep(LEAD_IN_S)
        first, before, mine, begun = len(answered.latencies), cpu_by_process(deployment), time.process_time(), time.perf_counter()
        time.sleep(PRODUCT_SECONDS)
        count, after, seconds = len(answered.latencies) - first, cpu_by_process(deployment), time.perf_counter() - begun
        generator_s = time.process_time() - mine
    used = {part: cpu_s - before.get(part, 0.0) for part, cpu_s in after.items()}
    contest.product.add(count / seconds, 1000 * sum(used.values()) / count)
    contest.generator_cpu_ms.append(1000 * generator_s / count)
    contest.parts.append({part: 1000 * cpu_s / count for part, cpu_s in used.items()})
    contest.latencies += answered.latencies[first:]
    contest.outcomes += answered.outcomes


def cpu_by_process(deployment: Deployment) -> dict[str, float]:
    """CPU seconds that each part of the product has used so far."""
    used: defaultdict[str, float] = defaultdict(float)
    for process in deployment.all_processes():
        try:
            times, name = process.cpu_times(), _part(process)
        except psutil.NoSuchProcess:
            continue
        used[name] += times.user + times.system
    return used


def _part(process: psutil.Process) -> str:
    command = process.cmdline()
    for argument in command:
        if argument.startswith("workers.") or argument == "pipeline.dicom.child":
            return {"pipeline.dicom.child": "decode children", "workers.cli.main": "supervisor"}.get(
                argument, argument.removeprefix("workers.")
            )
    name = process.name()
    return "postgres" if "postgres" in name else "valkey" if "valkey" in name else name


def show_contests(contests: list[Contest], console: Console) -> None:
    """Print where the CPU goes, and the contenders."""
    for contest in contests:
        parts = Table(title=f"{contest.name}: where the CPU of one case goes (ms, median of {len(contest.parts)} rounds)")
        parts.add_column("process")
        parts.add_column("CPU ms a case", justify="right")
        names = sorted({name for each in contest.parts for name in each}, key=lambda name: -_median_of(contest, name))
        for name in names:
            parts.add_row(name, f"{_median_of(contest, name):.1f}")
        parts.add_row("all of secondread", f"{contest.product.cpu_ms:.1f}")
        parts.add_row("of it, the bare loop's work", f"{contest.limit.cpu_ms:.1f}")
        parts.add_row("load generator, beside it", f"{statistics.median(contest.generator_cpu_ms):.1f}")
        console.print(parts)
    rounds = f"medians of {ROUNDS} (shipped model: {SHIPPED_ROUNDS}) interleaved rounds"
    table = Table(title=f"{CORES} cores, {IN_FLIGHT} in flight, {IMAGE_PX} px images, {rounds}")
    for heading in ("model", "contender", "images/s", "ratio to (b)", "CPU ms an image"):
        table.add_column(heading, justify="left" if heading in ("model", "contender") else "right")
    for contest in contests:
        for label, speed in contest.rows:
            table.add_row(contest.name, label, f"{speed.rate:.1f}", _ratio(speed, contest.limit), f"{speed.cpu_ms:.1f}")
    console.print(table)


def _ratio(speed: Speed, limit: Speed) -> str:
    ratios = sorted(one / other for one, other in zip(speed.images_per_s, limit.images_per_s, strict=True))
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"


def _median_of(contest: Contest, part: str) -> float:
    return statistics.median(each.get(part, 0.0) for each in contest.parts)


def _facts(contests: list[Contest]) -> dict[str, Any]:
    """Everything that was measured, for build/bench.json."""
    return {
        contest.name: {
            "a_images_per_s": contest.first.rate,
            "b_images_per_s": contest.limit.rate,
            "b_batch": contest.best_batch,
            "c_images_per_s": contest.product.rate,
            "ratio": contest.ratio,
            "a_cpu_ms": contest.first.cpu_ms,
            "b_cpu_ms": contest.limit.cpu_ms,
            "c_cpu_ms": contest.product.cpu_ms,
            "c_cpu_ms_by_process": {name: _median_of(contest, name) for name in contest.parts[0]},
            "c_latency_ms": {f"p{level}": 1000 * percentile(contest.latencies, level) for level in (50, 95, 99)},
            "outcomes": dict(contest.outcomes),
            "rounds": {name: speed.images_per_s for name, speed in (("a", contest.first), ("b", contest.limit), ("c", contest.product))},
        }
        for contest in contests
    }
