"""`make bench`: secondread beside the bare loop, interleaved in one run, with the CPU that every process takes.

(a) the bare in-process loop at batch 1; (b) the bare loop at its best batch, decoding overlapped, a process a core: the limit
of the machine; (c) secondread end to end, 32 cases in flight over HTTP. Prints one table, writes build/bench.json, exits
non-zero where (c)/(b) falls short of its bar.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from pipeline.dicom.phantom import PhantomStudy, phantom_instance
from pipeline.imaging.phantom import phantom
from pipeline.inference.card import SHIPPED_MODELS
from pipeline.inference.seeded import write_seeded_model
from tests.load.clients import Clients, multipart
from workers.settings import INFERENCE_VARIABLES, TUNED_VARIABLES

ROOT = Path(__file__).resolve().parents[2]
BAR = 0.55
"""(c)/(b) that must be reached on the bench model."""
IN_FLIGHT = 32
IMAGES = 16
IMAGE_PX = 512
SIDE_PX = 480
"""The bench model's input: 25 to 30 CPU ms an image, bare."""
ROUNDS = 9
SECONDS = 5.0
"""Many short rounds: the machine's speed changes within a minute, and neighbours in time share it."""
PRODUCT_SECONDS = 2 * SECONDS
"""Answers come by the batch: in five seconds one batch more or less is a tenth."""
LEAD_IN_S = 2.0
"""Until all clients are spread over the pools; a drain is not measured either, as the bare loop has neither."""
SHIPPED_ROUNDS = 3
"""Beside it, not judged."""
BATCHES = (4, 8, 16)
CORES = os.cpu_count() or 1


@dataclass
class Figures:
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


def bare(model: Path, images: Path, *, batch: int, processes: int, seconds: float = SECONDS) -> dict[str, float]:
    """Run the bare loop in processes of its own."""
    command = [sys.executable, str(Path(__file__).with_name("bare_loop.py")), "--model", str(model), "--images", str(images)]
    command += ["--batch", str(batch), "--processes", str(processes), "--seconds", str(seconds)]
    # The same tuning as our own processes have: the limit of the machine, not of a default.
    environment = os.environ | TUNED_VARIABLES | INFERENCE_VARIABLES | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


@contextmanager
def secondread(state: Path, models: Path) -> Iterator[tuple[psutil.Process, str, str]]:
    """Run the whole product; yield its process, its address and a key."""
    # The servers' user must reach it; pytest and tempfile close their folders to everybody else.
    state.chmod(0o711)
    environment = os.environ | {
        "SECONDREAD_STATE_DIR": str(state),
        "SECONDREAD_MODELS_DIR": str(models),
        "SECONDREAD_GATEWAY_PORT": "0",
        "SECONDREAD_METRICS_PORT": "0",
        "SECONDREAD_INFERENCE_WORKERS": str(CORES),
        "SECONDREAD_LOG_LEVEL": "warning",
    }
    process = subprocess.Popen([sys.executable, "-m", "workers.cli.main", "up"], env=environment, stderr=subprocess.DEVNULL, cwd=ROOT)
    try:
        access = state / "access.json"
        while not access.exists():
            if process.poll() is not None:
                raise SystemExit("secondread did not start; see the logs in its state folder")
            time.sleep(0.1)
        facts = json.loads(access.read_text())
        yield psutil.Process(process.pid), facts["url"], facts["api_key"]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def cpu_by_process(up: psutil.Process) -> dict[str, float]:
    """CPU seconds that each part of the product has used so far."""
    used: defaultdict[str, float] = defaultdict(float)
    for process in [up, *up.children(recursive=True)]:
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


@dataclass
class Contest:
    """All figures of one model."""

    name: str
    first: Figures = field(default_factory=Figures)
    limit: Figures = field(default_factory=Figures)
    product: Figures = field(default_factory=Figures)
    best_batch: int = 0
    generator_cpu_ms: list[float] = field(default_factory=list)
    parts: list[dict[str, float]] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    redis_bytes: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """(c)/(b): the median of the rounds' own ratios."""
        return statistics.median(ours / bare for ours, bare in zip(self.product.images_per_s, self.limit.images_per_s, strict=True))


def run_contest(name: str, models: Path, images: Path, console: Console, *, rounds: int) -> Contest:
    """Measure (a), (b) and (c) in turn, several times."""
    folder = next(path for path in models.iterdir() if path.is_dir())
    contest = Contest(name)
    console.print(f"[dim]{name}: looking for the best batch of the bare loop ...[/dim]")
    tried = {batch: bare(folder, images, batch=batch, processes=CORES, seconds=4.0)["images_per_s"] for batch in BATCHES}
    contest.best_batch = max(tried, key=lambda batch: tried[batch])
    bodies = [multipart(path.read_bytes()) for path in sorted(images.glob("*.dcm"))]
    with (
        tempfile.TemporaryDirectory(prefix="secondread-bench-", dir="/var/tmp") as state,
        secondread(Path(state), models) as (up, url, key),
    ):
        with _clients(url, key, bodies).loaded():
            time.sleep(4.0)
        for number in range(rounds):
            console.print(f"[dim]{name}: round {number + 1} of {rounds} ...[/dim]")
            once = bare(folder, images, batch=1, processes=1)
            contest.first.add(once["images_per_s"], once["cpu_ms_per_image"])
            best = bare(folder, images, batch=contest.best_batch, processes=CORES)
            contest.limit.add(best["images_per_s"], best["cpu_ms_per_image"])
            _measure_product(contest, up, url, key, bodies)
    return contest


def _clients(url: str, key: str, bodies: list[tuple[bytes, str]]) -> Clients:
    return Clients(url, key, bodies, in_flight=IN_FLIGHT)


def _measure_product(contest: Contest, up: psutil.Process, url: str, key: str, bodies: list[tuple[bytes, str]]) -> None:
    """Measure while every client has a case in flight: neither the first cases' way in nor the last ones' way out counts."""
    with _clients(url, key, bodies).loaded() as answered:
        time.sleep(LEAD_IN_S)
        first, before, mine, begun = len(answered.latencies), cpu_by_process(up), time.process_time(), time.perf_counter()
        time.sleep(PRODUCT_SECONDS)
        count, after, seconds = len(answered.latencies) - first, cpu_by_process(up), time.perf_counter() - begun
        generator_s = time.process_time() - mine
    used = {part: cpu_s - before.get(part, 0.0) for part, cpu_s in after.items()}
    contest.product.add(count / seconds, 1000 * sum(used.values()) / count)
    contest.generator_cpu_ms.append(1000 * generator_s / count)
    contest.parts.append({part: 1000 * cpu_s / count for part, cpu_s in used.items()})
    contest.latencies += answered.latencies[first:]
    contest.outcomes += answered.outcomes


def show(contests: list[Contest], console: Console) -> None:
    """Print the tables."""
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
        rows = (
            ("(a) bare loop, batch 1", contest.first),
            (f"(b) bare loop, batch {contest.best_batch}, overlapped", contest.limit),
            ("(c) secondread, end to end", contest.product),
        )
        for label, figures in rows:
            table.add_row(contest.name, label, f"{figures.rate:.1f}", _ratio(figures, contest.limit), f"{figures.cpu_ms:.1f}")
    console.print(table)


def _ratio(figures: Figures, limit: Figures) -> str:
    ratios = sorted(one / other for one, other in zip(figures.images_per_s, limit.images_per_s, strict=True))
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"


def _median_of(contest: Contest, part: str) -> float:
    return statistics.median(each.get(part, 0.0) for each in contest.parts)


def write(contests: list[Contest]) -> None:
    """Write the same figures to build/bench.json."""
    figures = {
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
            "c_latency_ms": {f"p{level}": 1000 * statistics.quantiles(contest.latencies, n=100)[level - 1] for level in (50, 95, 99)},
            "outcomes": dict(contest.outcomes),
            "rounds": {
                name: figures.images_per_s for name, figures in (("a", contest.first), ("b", contest.limit), ("c", contest.product))
            },
        }
        for contest in contests
    }
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build" / "bench.json").write_text(json.dumps(figures, indent=2) + "\n")


def main() -> None:
    """Measure, print, judge."""
    console = Console(width=110)
    with tempfile.TemporaryDirectory(prefix="secondread-bench-") as name:
        images, models = Path(name) / "images", Path(name) / "models"
        images.mkdir()
        for seed in range(IMAGES):
            image, _ = phantom(seed, rows_px=IMAGE_PX, columns_px=IMAGE_PX)
            (images / f"{seed:02d}.dcm").write_bytes(phantom_instance(image, PhantomStudy(name=f"bench-{seed}")))
        write_seeded_model(models / "bench", seed=7, side_px=SIDE_PX)
        contests = [
            run_contest("bench model", models, images, console, rounds=ROUNDS),
            run_contest("shipped model", SHIPPED_MODELS, images, console, rounds=SHIPPED_ROUNDS),
        ]
    show(contests, console)
    write(contests)
    judged = contests[0]
    failed = {outcome: count for outcome, count in judged.outcomes.items() if outcome != "completed"}
    if judged.ratio < BAR or failed:
        console.print(f"(c)/(b) is {judged.ratio:.2f}; the bar is {BAR}. Not completed: {failed or 'none'}.")
        sys.exit(1)
    console.print(f"(c)/(b) is {judged.ratio:.2f}; the bar is {BAR}.")


if __name__ == "__main__":
    main()
