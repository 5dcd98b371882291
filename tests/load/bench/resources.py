"""What the product takes beside CPU: memory of all its processes, bytes through Redis, and cores while nothing happens."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import redis

from tests.acceptance.idle_cost import MOST_CORES, SETTLE_S, measure
from tests.acceptance.running import Deployment, running_deployment
from tests.load.bench.ground import IMAGE_PX, IN_FLIGHT, LEAD_IN_S, Bodies, Ground, bodies_of, clients, image_files, product, warm_up
from tests.load.figures import Figure
from workers.settings import MIB

LOADED_S = 10.0
SAMPLE_S = 0.25
IDLE_S = 10.0
LARGE_PX = 3000
KB = 1000.0
MOST_KB = 20.0
MOST_RATIO = 1.1
"""Bytes for a large image over bytes for a small one: pixels do not go through Redis."""
ALONE_CASES = 40


def measure_memory(ground: Ground) -> list[Figure]:
    """Peak memory of all processes together while 32 cases are in flight; shared pages count once."""
    ground.tell("memory: 32 in flight")
    bodies = bodies_of(ground.images)
    with product(ground.model.parent) as deployment:
        warm_up(deployment, bodies)
        with clients(deployment, bodies).loaded(), _peak(deployment) as peak:
            time.sleep(LOADED_S)
    section = f"memory, {IN_FLIGHT} in flight"
    return [Figure(section, "peak of all processes (proportional set size)", peak[0] / MIB, "MiB")]


@contextmanager
def _peak(deployment: Deployment) -> Iterator[list[float]]:
    """Look again and again; the list holds the most that was seen."""
    most, is_over = [0.0], threading.Event()

    def look() -> None:
        while not is_over.wait(SAMPLE_S):
            most[0] = max(most[0], sum(_pss(process) for process in deployment.all_processes()))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield most
    finally:
        is_over.set()
        thread.join()


def _pss(process: psutil.Process) -> float:
    try:
        return float(process.memory_full_info().pss)
    except psutil.NoSuchProcess:
        return 0.0


def measure_wire(ground: Ground) -> list[Figure]:
    """Bytes in and out of Redis a case: under load, and one case at a time for a small and a large image."""
    small, large = bodies_of(ground.images), bodies_of(image_files(ground.folder / "large", side_px=LARGE_PX, count=4))
    section = "bytes through Redis, a case"
    with product(ground.model.parent) as deployment, deployment.redis() as client:
        warm_up(deployment, small)
        ground.tell("Redis: idle")
        idle_per_s = _idle(client)
        ground.tell("Redis: 32 in flight")
        loaded = _loaded(deployment, client, small)
        ground.tell("Redis: one at a time")
        alone_small, alone_large = (_alone(deployment, client, bodies, idle_per_s) for bodies in (small, large))
    return [
        Figure(section, f"{IN_FLIGHT} in flight, {IMAGE_PX} px", loaded / KB, "kB", most=MOST_KB),
        Figure(section, f"one at a time, {IMAGE_PX} px, without what idling takes", alone_small / KB, "kB", most=MOST_KB),
        Figure(section, f"one at a time, {LARGE_PX} px, without what idling takes", alone_large / KB, "kB", most=MOST_KB),
        Figure(section, f"{LARGE_PX} px over {IMAGE_PX} px", alone_large / alone_small, most=MOST_RATIO),
        Figure(section, "idle, a second", idle_per_s / KB, "kB"),
    ]


def _bytes(client: "redis.Redis") -> int:
    stats: dict[str, Any] = client.info("stats")
    return int(stats["total_net_input_bytes"]) + int(stats["total_net_output_bytes"])


def _idle(client: "redis.Redis") -> float:
    before, begun = _bytes(client), time.monotonic()
    time.sleep(IDLE_S)
    return (_bytes(client) - before) / (time.monotonic() - begun)


def _loaded(deployment: Deployment, client: "redis.Redis", bodies: Bodies) -> float:
    with clients(deployment, bodies).loaded() as answered:
        time.sleep(LEAD_IN_S)
        before, first = _bytes(client), len(answered.latencies)
        time.sleep(LOADED_S)
        return (_bytes(client) - before) / (len(answered.latencies) - first)


def _alone(deployment: Deployment, client: "redis.Redis", bodies: Bodies, idle_per_s: float) -> float:
    before, begun = _bytes(client), time.monotonic()
    with clients(deployment, bodies, in_flight=1).loaded() as answered:
        while len(answered.latencies) < ALONE_CASES:
            time.sleep(SAMPLE_S)
    seconds = time.monotonic() - begun
    return (_bytes(client) - before - idle_per_s * seconds) / len(answered.latencies)


def measure_idle(ground: Ground) -> list[Figure]:
    """Cores that all processes take while nothing happens: what `make idle` shows process by process."""
    ground.tell("idle")
    with running_deployment() as deployment:
        # Idle means after work, not before the first.
        deployment.door.answered(next(iter(sorted(ground.images.iterdir()))).read_bytes())
        time.sleep(SETTLE_S)
        costs = measure(deployment, seconds=IDLE_S)
    return [Figure("idle", "cores, all processes", sum(cost.cores for cost in costs), most=MOST_CORES)]
