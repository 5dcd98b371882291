"""The bare loop under an open load: what a script answers that takes images as they come and reads together what waits.

Run as a process, printed as JSON. One process a core takes from one line; each decodes, frames and reads a batch, up to its limit.
"""

import argparse
import json
import multiprocessing
import queue
import random
import time
from pathlib import Path
from typing import TypeAlias

import numpy as np

from pipeline.inference.runner import ModelRunner
from tests.load.bench.bare_loop import prepare

Line: TypeAlias = "multiprocessing.Queue[tuple[float, int] | None]"
"""(due at, number); None ends it."""


def _read(arguments: argparse.Namespace, line: Line, answers: "multiprocessing.Queue[list[float] | None]") -> None:
    files = [path.read_bytes() for path in sorted(arguments.images.glob("*.dcm"))]
    runner = ModelRunner.load(arguments.model, device="cpu", threads=1)
    runner.warm_up()
    answers.put(None)
    waits: list[float] = []
    is_over = False
    while not is_over:
        batch, is_over = _taken(line, arguments.batch)
        if batch:
            runner.run(np.stack([prepare(files[number % len(files)], runner.card.input.side_px) for _, number in batch])[:, np.newaxis])
            now = time.monotonic()
            waits += [now - due_at for due_at, _ in batch]
    answers.put(waits)


def _taken(line: Line, most: int) -> tuple[list[tuple[float, int]], bool]:
    """Wait for one, then take what waits; True once the load is over."""
    taken: list[tuple[float, int]] = []
    try:
        while len(taken) < most:
            image = line.get(block=not taken)
            if image is None:
                return taken, True
            taken.append(image)
    except queue.Empty:
        pass
    return taken, False


def main() -> None:
    """Run and print one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--processes", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    line, answers = context.Queue(), context.Queue()
    workers = [context.Process(target=_read, args=(arguments, line, answers)) for _ in range(arguments.processes)]
    for worker in workers:
        worker.start()
    for _ in workers:
        answers.get()
    gaps, due_at, number = random.Random(arguments.seed), time.monotonic(), 0
    until = due_at + arguments.seconds
    while due_at < until:
        time.sleep(max(0.0, due_at - time.monotonic()))
        line.put((due_at, number))
        due_at, number = due_at + gaps.expovariate(arguments.rate), number + 1
    for _ in workers:
        line.put(None)
    waits = [wait for _ in workers for wait in answers.get() or []]
    for worker in workers:
        worker.join()
    print(json.dumps({"waits_s": waits}))


if __name__ == "__main__":
    main()
