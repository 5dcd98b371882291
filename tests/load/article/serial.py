"""The set-up that the article starts from: each device takes one image after another, first come, first served."""

import queue
import random
import threading
import time

from tests.load.article.scale import COST, DEVICES, Phase


def serve_one_by_one(phase: Phase, seconds: float, *, seed: int) -> list[float]:
    """Load it for so long and let it work off what waits; return each image's wait until its answer, in the order of arrival."""
    line: queue.SimpleQueue[tuple[int, float] | None] = queue.SimpleQueue()
    answered: dict[int, float] = {}
    devices = [threading.Thread(target=_device, args=(line, answered, random.Random(seed + number))) for number in range(DEVICES)]
    for device in devices:
        device.start()
    gaps, begun = random.Random(seed), time.monotonic()
    due_at, number = begun + gaps.expovariate(phase.rate), 0
    while due_at < begun + seconds:
        time.sleep(max(0.0, due_at - time.monotonic()))
        line.put((number, due_at))
        due_at, number = due_at + gaps.expovariate(phase.rate), number + 1
    for _ in devices:
        line.put(None)
    for device in devices:
        device.join()
    return [answered[number] for number in sorted(answered)]


def _device(line: "queue.SimpleQueue[tuple[int, float] | None]", answered: dict[int, float], chance: random.Random) -> None:
    while (image := line.get()) is not None:
        number, due_at = image
        time.sleep(COST.draw_s(1, chance))
        answered[number] = time.monotonic() - due_at
