"""How well a device is used whose batches take time and no CPU: the product around it must never be what it waits for."""

import time
from datetime import datetime

from tests.faults.observe import events_of
from tests.load.bench.ground import LEAD_IN_S, Ground, bodies_of, clients, product
from tests.load.figures import Figure
from tests.load.sleeping import Cost, write_sleeping_model

COST = Cost.through(0.65, 0.8)
"""Sixteen images in 0.8 s: a device of 20 images a second, which is less than this machine's own CPU carries."""
BATCH = 16
LEAST = 0.95
SECONDS = 30.0


def measure_device(ground: Ground) -> list[Figure]:
    """Keep two batches in flight over HTTP; count what the device did between the end of one batch and the end of a later one."""
    ground.tell("emulated device: starting")
    models = ground.folder / "sleeping-models"
    write_sleeping_model(models / "sleeping", COST)
    settings = {"SECONDREAD_INFERENCE_WORKERS": "1", "SECONDREAD_LOG_LEVEL": "info"}
    with product(models, module="tests.load.sleeping_up", **settings) as deployment:
        with clients(deployment, bodies_of(ground.images)).loaded() as answered:
            ground.tell(f"emulated device: {SECONDS:.0f} s")
            time.sleep(LEAD_IN_S + SECONDS)
            fired = events_of([deployment.logs / "inference-1.log"], "batch_fired")
        incomplete = sum(count for outcome, count in answered.outcomes.items() if outcome != "completed")
    limit = BATCH / COST.mean_s(BATCH)
    rate, images = pace([(_moment(each["timestamp"]), each["n"]) for each in fired])
    section = "emulated device"
    return [
        Figure(section, "limit of the device", limit, "images/s"),
        Figure(section, "(c), 32 in flight", rate, "images/s"),
        Figure(section, "(c)/limit", rate / limit, least=LEAST),
        Figure(section, "images a batch", images),
        Figure(section, "cases that were not completed", incomplete, most=0),
    ]


def pace(batches: list[tuple[float, int]]) -> tuple[float, float]:
    """Images a second and images a batch of a device, from when each of its batches ended; the way in is left out."""
    begun = batches[0][0] + LEAD_IN_S
    (first_at, _), *later = [batch for batch in batches if batch[0] >= begun]
    images = sum(count for _, count in later)
    return images / (later[-1][0] - first_at), images / len(later)


def _moment(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()
