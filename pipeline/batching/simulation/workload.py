"""Who comes when: streams of images, seeded."""

import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipeline.flow import DEADLINE_S, Lane

SPENT_S = (1.0, 4.0)
"""Seconds that fetching and preparing took before an image stands in line, even."""
AFTER_S = 1.0
"""Seconds that an image needs once its batch is done."""


@dataclass(frozen=True, slots=True)
class Image:
    """One image on its way to a model."""

    arrives_at: float
    """When it stands in line."""
    spent_s: float
    """What it had used of its time by then."""
    lane: Lane = Lane.ROUTINE
    scale: float = 1.0
    """What its shape costs, as a share of the largest; images of one scale are of one shape."""

    @property
    def admitted_at(self) -> float:
        """When it was sent."""
        return self.arrives_at - self.spent_s

    @property
    def deadline(self) -> float:
        """When its answer is due."""
        return self.admitted_at + DEADLINE_S

    @property
    def done_by(self) -> float:
        """When its batch must be over."""
        return self.deadline - AFTER_S


Arrivals = Callable[[random.Random], list[float]]


def steady(rate: float, count: int) -> Arrivals:
    """So many images, independent of each other, at one mean rate."""

    def draw(dice: random.Random) -> list[float]:
        at_s, moments = 0.0, []
        for _ in range(count):
            at_s += dice.expovariate(rate)
            moments.append(at_s)
        return moments

    return draw


Knot = tuple[float, float]
"""(second, images a second); the rate is a straight line between two."""

DAY: Sequence[Knot] = (
    *((0, 0.3), (600, 1), (1200, 4), (1500, 5)),
    *((1501, 10), (1560, 10), (1561, 4.5), (2100, 4), (2400, 1.5)),
    *((2700, 1.5), (2900, 4), (3200, 4), (3201, 12), (3245, 12), (3246, 3), (3600, 0.5)),
)
"""A working day in an hour: a morning's rise, a lunch, and two spikes above what four devices can read."""


def studies(knots: Sequence[Knot], *, mean_images: float = 3.0, mean_gap_s: float = 0.3) -> Arrivals:
    """Images in bursts: studies come at a rate that changes over the day, each with a geometric number of images close together."""
    highest = max(rate for _, rate in knots)

    def draw(dice: random.Random) -> list[float]:
        begun_s, moments = 0.0, []
        while (begun_s := begun_s + dice.expovariate(highest / mean_images)) <= knots[-1][0]:
            # Thinning: of a stream at the highest rate as many are kept as the rate of the moment says.
            if dice.random() * highest > _rate_at(knots, begun_s):
                continue
            at_s = begun_s
            moments.append(at_s)
            while dice.random() >= 1 / mean_images:
                at_s += dice.expovariate(1 / mean_gap_s)
                moments.append(at_s)
        return sorted(moments)

    return draw


def _rate_at(knots: Sequence[Knot], at_s: float) -> float:
    place = bisect_right(knots, at_s, key=lambda knot: knot[0])
    if place == len(knots):
        return knots[-1][1]
    (left_s, left), (right_s, right) = knots[place - 1], knots[place]
    return left + (right - left) * (at_s - left_s) / (right_s - left_s)


@dataclass(frozen=True, slots=True)
class Mix:
    """What kind of images come."""

    urgent_share: float = 0.0
    small_share: float = 0.0
    small_scale: float = 0.4


def images(arrivals: Arrivals, mix: Mix, seed: int) -> list[Image]:
    """The images of one seed, in the order in which they come to the line."""
    dice = random.Random(f"images {seed}")  # noqa: S311 - a simulation, not a secret
    moments = arrivals(dice)
    spent = [dice.uniform(*SPENT_S) for _ in moments]
    lanes = [Lane.URGENT if dice.random() < mix.urgent_share else Lane.ROUTINE for _ in moments]
    scales = [mix.small_scale if dice.random() < mix.small_share else 1.0 for _ in moments]
    return [Image(*each) for each in zip(moments, spent, lanes, scales, strict=True)]
