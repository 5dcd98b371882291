"""`python -m tests.load.device_bench`: the device path beside a bare loop on a CUDA device; prints one table. Needs a device.

The bare loop is the one that is written first: widen on the host, copy from ordinary memory, run as it comes, copy back. The
product's loop stages the next batch while one runs, copies narrow bytes and replays recorded shapes. Both run the same weights.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console
from rich.table import Table

from pipeline.inference.card import SHIPPED_MODELS, load_card
from pipeline.inference.device import set_threads, share_device
from pipeline.inference.networks import build_network
from pipeline.inference.runner import WARM_UP_SIZES, ModelRunner
from pipeline.inference.weights import read_weights

NO_DEVICE = 2
"""Exit code where torch sees no CUDA device."""
ROUNDS = 5
BATCHES = 100

Images = npt.NDArray[np.uint8]


def bare_loop(folder: Path, device: torch.device) -> Callable[[Images], None]:
    """What a script does."""
    card = load_card(folder)
    network = build_network(card, read_weights(folder, card)).to(device)

    def answer(batch: Images) -> None:
        with torch.inference_mode():
            outline, scores = network(torch.from_numpy(batch.astype(np.float32) * np.float32(card.input.scale)).to(device))
            torch.sigmoid(outline).cpu(), torch.sigmoid(scores).cpu()

    return answer


def staged_loop(runner: ModelRunner, batch: Images, count: int) -> None:
    """What the model thread does when the line is never empty."""
    staged = runner.stage([batch])
    for _ in range(count - 1):
        coming = runner.stage([batch])
        runner.run_staged(staged)
        staged = coming
    runner.run_staged(staged)


def images_per_s(work: Callable[[], None], images: int) -> float:
    """Median of some rounds."""
    work()
    rates = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        work()
        rates.append(images / (time.perf_counter() - begun))
    return statistics.median(rates)


def measure(folder: Path, device: str) -> Table:
    """One row a batch size."""
    runner = ModelRunner.load(folder, device=device, threads=1)
    durations_s = runner.warm_up()
    runner.check_golden()
    bare = bare_loop(folder, torch.device(device))
    side_px, channels = runner.card.input.side_px, runner.card.input.channels
    table = Table(title=f"{runner.card.reference} on {torch.cuda.get_device_name(device)}, torch {torch.__version__}, {runner.precision}")
    for heading in ("batch", "L(b) ms", "bare loop, images/s", "secondread, images/s", "ratio", "bytes to the device an image"):
        table.add_column(heading, justify="right")
    for size in WARM_UP_SIZES:
        batch = np.random.default_rng(size).integers(0, 256, (size, channels, side_px, side_px), dtype=np.uint8)

        def script(batch: Images = batch) -> None:
            for _ in range(BATCHES):
                bare(batch)

        def ours(batch: Images = batch) -> None:
            staged_loop(runner, batch, BATCHES)

        theirs, mine = images_per_s(script, size * BATCHES), images_per_s(ours, size * BATCHES)
        facts = (f"{1000 * durations_s[size]:.2f}", f"{theirs:.0f}", f"{mine:.0f}", f"{mine / theirs:.2f}", str(batch.nbytes // size))
        table.add_row(str(size), *facts)
    return table


def main() -> None:
    """Measure and print, or say that there is no device."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, default=SHIPPED_MODELS / "breast-lesion-1")
    parser.add_argument("--device", default="cuda:0")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("This measures a CUDA device, and torch sees none here: nothing was measured.", file=sys.stderr)
        sys.exit(NO_DEVICE)
    set_threads(1)
    share_device(arguments.device, memory_fraction=0.9)
    Console(width=120).print(measure(arguments.model, arguments.device))


if __name__ == "__main__":
    main()
