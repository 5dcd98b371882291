"""What no rule can do better, and what arithmetic says of simple houses: the simulation is held against both."""

import heapq
from collections.abc import Sequence

from pipeline.batching.simulation.cost import LIMIT, Cost
from pipeline.batching.simulation.workload import Image


def least_missed_percent(images: Sequence[Image], cost: Cost, *, devices: int) -> float:
    """Share of the images that any rule misses, also one that knows the future.

    An image takes a full batch's share of a device at the least (the cheapest shape's, where there are several). So all devices
    together are one machine that answers an image a slot; an image may have any slot that begins before it is due, from the one in
    which it comes. Earliest deadline first answers the most of such jobs. Real batches cannot be begun in slots or interrupted, so
    the bound is not reached.
    """
    smallest = min(image.scale for image in images)
    slot_s = smallest * cost.mean_s(LIMIT) / (devices * LIMIT)
    jobs = sorted((int(image.arrives_at / slot_s), int(image.done_by / slot_s)) for image in images)
    open_until: list[int] = []
    answered = place = slot = 0
    while place < len(jobs) or open_until:
        if not open_until:
            slot = max(slot, jobs[place][0])
        while place < len(jobs) and jobs[place][0] <= slot:
            heapq.heappush(open_until, jobs[place][1])
            place += 1
        while open_until and open_until[0] < slot:
            heapq.heappop(open_until)
        if open_until:
            heapq.heappop(open_until)
            answered += 1
        slot += 1
    return 100 * (1 - answered / len(images))


def inoue_mean_s(rate: float, *, alpha_s: float, beta_s: float) -> float:
    """Upper bound on the mean time in line and device: one device that takes everybody who waits, without a limit.

    References
    ----------
    Y. Inoue, "Queueing analysis of GPU-based inference servers with dynamic batching: a closed-form characterization",
    Performance Evaluation 147 (2021), theorem 2.
    """
    load = rate * beta_s
    if load >= 1:
        return float("inf")
    few = (beta_s + alpha_s) / (2 * (1 - load)) * (1 + 2 * rate * alpha_s + (1 - rate * alpha_s) / (1 + load))
    many = 1.5 * alpha_s / (1 - load) + beta_s / 2 * (load + 2) / (1 - load**2)
    return min(few, many)
