"""What is still answered in time when half as much again is asked as can be done, each case within three seconds."""

import time

from tests.load.bench.ground import Ground, bodies_of, product, sustained, warm_up
from tests.load.figures import Figure
from tests.load.open_clients import Answer, OpenClients

OVERLOAD = 1.5
DEADLINE_S = 3.0
SHARE = 0.95
"""Of what (c) itself sustains, that must be answered in time."""
SUSTAINED_S = 10.0
LEAD_IN_S = 5.0
"""Longer than a deadline: from then on the overload is there."""
SECONDS = 20.0


def measure_goodput(ground: Ground) -> list[Figure]:
    """Measure what it sustains, then ask for half as much again."""
    bodies = bodies_of(ground.images, deadline_s=f"{DEADLINE_S:g}")
    with product(ground.model.parent) as deployment:
        warm_up(deployment, bodies_of(ground.images))
        ground.tell("goodput: what it sustains")
        can = sustained(deployment, bodies_of(ground.images), SUSTAINED_S)
        ground.tell(f"goodput: {OVERLOAD:.0%} of {can:.1f} images/s, {DEADLINE_S:.0f} s each")
        load = OpenClients(deployment.access.url, deployment.access.api_key, bodies, rate=OVERLOAD * can)
        begun = time.monotonic() + LEAD_IN_S
        with load.running():
            load.last(LEAD_IN_S + SECONDS)
    middle, end = begun + SECONDS / 2, begun + SECONDS
    whole, second = in_time(load.answers, begun, end) / can, in_time(load.answers, middle, end) / can
    section = f"goodput at {OVERLOAD:.0%}"
    return [
        Figure(section, "images/s that (c) sustains, 32 in flight", can, "/s"),
        Figure(section, f"answered within {DEADLINE_S:.0f} s, of these", whole, least=SHARE),
        Figure(section, "the same in the second half", second, least=SHARE),
        Figure(section, "answered by the clock, or refused", 100 * _unread(load.answers), "%"),
    ]


def in_time(answers: list[Answer], begin: float, end: float) -> float:
    """Readings a second that came in time, of the cases that were due between these moments."""
    good = sum(begin <= answer.due_at < end and answer.is_final and answer.wait_s <= DEADLINE_S for answer in answers)
    return good / (end - begin)


def _unread(answers: list[Answer]) -> float:
    return sum(not answer.is_final for answer in answers) / len(answers)
