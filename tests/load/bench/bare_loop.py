"""The bare loop: what a script without a queue, a ledger or a deadline reaches. Run as a process, printed as JSON.

`--batch 1 --processes 1` is the loop that one writes first. With more processes and the decoding overlapped by a thread of
its own it is the limit of the machine.
"""

import argparse
import io
import json
import multiprocessing
import queue
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pydicom

from pipeline.imaging.arrays import ByteImage
from pipeline.imaging.letterbox import letterbox
from pipeline.inference.runner import ModelRunner


def prepare(data: bytes, side_px: int) -> ByteImage:
    """Decode and frame one image, as a script does."""
    image: ByteImage = pydicom.dcmread(io.BytesIO(data)).pixel_array
    return letterbox(image, side_px)[0]


def _inputs(files: list[bytes], side_px: int, seconds: float, *, is_overlapped: bool) -> Iterator[ByteImage]:
    """Decoded and framed images until the time is up; by a thread of its own where decoding is overlapped."""
    until = time.perf_counter() + seconds

    def endless() -> Iterator[ByteImage]:
        number = 0
        while time.perf_counter() < until:
            yield prepare(files[number % len(files)], side_px)
            number += 1

    if not is_overlapped:
        yield from endless()
        return
    ready: queue.Queue[ByteImage | None] = queue.Queue(maxsize=32)

    def fill() -> None:
        for image in endless():
            ready.put(image)
        ready.put(None)

    threading.Thread(target=fill, daemon=True).start()
    while (image := ready.get()) is not None:
        yield image


def run(model: Path, files: list[bytes], *, batch: int, seconds: float, is_overlapped: bool) -> tuple[int, float, float]:
    """Read images for some seconds; return (images, seconds, CPU seconds)."""
    runner = ModelRunner.load(model, device="cpu", threads=1)
    runner.warm_up((batch,))
    begun, cpu = time.perf_counter(), time.process_time()
    count, held = 0, []
    for image in _inputs(files, runner.card.input.side_px, seconds, is_overlapped=is_overlapped):
        held.append(image)
        if len(held) == batch:
            runner.run(np.stack(held)[:, np.newaxis])
            count += batch
            held = []
    return count, time.perf_counter() - begun, time.process_time() - cpu


def _worker(arguments: argparse.Namespace, files: list[bytes], results: "multiprocessing.Queue[tuple[int, float, float]]") -> None:
    is_overlapped = arguments.processes > 1
    results.put(run(arguments.model, files, batch=arguments.batch, seconds=arguments.seconds, is_overlapped=is_overlapped))


def main() -> None:
    """Run and print one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=8.0)
    arguments = parser.parse_args()
    files = [path.read_bytes() for path in sorted(arguments.images.glob("*.dcm"))]
    context = multiprocessing.get_context("spawn")
    results: multiprocessing.Queue[tuple[int, float, float]] = context.Queue()
    workers = [context.Process(target=_worker, args=(arguments, files, results)) for _ in range(arguments.processes)]
    for worker in workers:
        worker.start()
    done = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    images = sum(count for count, _, _ in done)
    print(
        json.dumps(
            {
                "images": images,
                "images_per_s": sum(count / seconds for count, seconds, _ in done),
                "cpu_ms_per_image": 1000 * sum(cpu for _, _, cpu in done) / images,
                "peak_mib": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
            }
        )
    )


if __name__ == "__main__":
    main()
