"""When a batch fires and who is in it. Pure: the moment, the line and the device's cost are arguments.

Fire when a device is idle and nothing speaks for waiting. What speaks for waiting: the next case
probably comes so soon that its share of the saved launch cost outweighs everybody's wait; or cases
are known to be on their way, and the wait for them is no longer than the run that they would share.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pipeline.batching.latency import LatencyModel

FireReason = Literal["full", "last call", "ceiling", "stop rule", "drain"]
TAIL_POWER = 4
"""p: 1 weighs the mean wait, more weighs the tail; flat between 2 and 8."""
URGENT_WEIGHT = 3.0
FINISH_MARGIN = 1.6
"""Spreads of the latency kept free before the head's deadline."""
SHORTEST_SLEEP_S = 0.001


class Candidate(Protocol):
    """What the rule must know of a waiting case."""

    @property
    def deadline(self) -> float:
        """When it is due, in the clock of `now`."""

    @property
    def ready_at(self) -> float:
        """Since when it waits."""

    @property
    def image_count(self) -> int:
        """Rows that it takes in a batch."""

    @property
    def lane(self) -> str:
        """Its lane's name."""


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The two upper bounds of the configuration."""

    images: int = 16
    """Most images in a batch."""
    window_s: float = 2.0
    """Longest that an idle device is held back for company."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What the rule is told besides the line."""

    now: float
    held_since: float | None
    """Since when this idle device has been held back; None where it has not."""
    hazard: float
    """Expected arrivals a second."""
    next_free_in_s: float | None
    """Seconds until another device is free; None where none is busy."""
    company: int = 0
    """Cases that were admitted and are still being prepared: known to come, not only expected."""


@dataclass(frozen=True, slots=True)
class Fire:
    """Run the first `case_count` of the line now."""

    case_count: int
    image_count: int
    reason: FireReason
    predicted_s: float
    slack_s: float
    """What the tightest member has left after the predicted end."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Ask again after this long, or when something happens."""

    seconds: float


def decide(line: Sequence[Candidate], latency: LatencyModel, ceilings: Ceilings, situation: Situation) -> Fire | Hold | None:
    """Decide for one idle device. `line` is in the order of virtual deadlines; None where it is empty."""
    chosen, images = _fitting(line, ceilings.images)
    if not chosen:
        return None
    cost_s = latency.seconds(images)
    last_call = min(case.deadline for case in chosen) - cost_s * (1 + FINISH_MARGIN * latency.spread)
    ceiling = _ceiling(ceilings, situation)

    def fire(reason: FireReason) -> Fire:
        slack_s = min(case.deadline for case in chosen) - situation.now - cost_s
        return Fire(len(chosen), images, reason, cost_s, slack_s)

    if images >= ceilings.images or len(chosen) < len(line):
        return fire("full")
    if situation.now >= last_call:
        return fire("last call")
    if situation.now >= ceiling:
        return fire("ceiling")
    awaited_until = _company_is_awaited_until(chosen, latency, ceilings, situation)
    if _is_worth_waiting(chosen, cost_s, situation):
        look = situation.now + max(cost_s / 8, 0.002)
    elif situation.now < awaited_until:
        # Who joins wakes the former; this look is for company that will not come after all.
        look = min(awaited_until, situation.now + max(cost_s / 2, 0.01))
    else:
        return fire("stop rule")
    return Hold(max(SHORTEST_SLEEP_S, min(last_call, ceiling, look) - situation.now))


def _ceiling(ceilings: Ceilings, situation: Situation) -> float:
    """Until when an idle device may be held back for company at most."""
    if situation.held_since is None:
        return situation.now + ceilings.window_s
    if situation.held_since > situation.now:
        # The clock was set back: nobody knows for how long it was held, so it is held no longer.
        return situation.now
    return situation.held_since + ceilings.window_s


def _fitting(line: Sequence[Candidate], limit: int) -> tuple[list[Candidate], int]:
    """The longest head of the line that fits a batch; a case larger than the limit goes alone."""
    chosen: list[Candidate] = []
    images = 0
    for case in line:
        if chosen and images + case.image_count > limit:
            break
        chosen.append(case)
        images += case.image_count
    return chosen, images


def _is_worth_waiting(chosen: Sequence[Candidate], cost_s: float, situation: Situation) -> bool:
    """Weigh one more arrival, saved from waiting a whole run, against everybody's longer wait."""
    run_s = cost_s if situation.next_free_in_s is None else max(situation.next_free_in_s, 0.0)
    gain = situation.hazard * ((run_s + cost_s) ** TAIL_POWER - cost_s**TAIL_POWER)
    price = 0.0
    for case in chosen:
        weight = URGENT_WEIGHT if case.lane == "urgent" else 1.0
        price += weight * TAIL_POWER * (max(situation.now - case.ready_at, 0.0) + cost_s) ** (TAIL_POWER - 1)
    return gain > price


def _company_is_awaited_until(chosen: Sequence[Candidate], latency: LatencyModel, ceilings: Ceilings, situation: Situation) -> float:
    """Until when cases that are known to come are waited for; the present moment or earlier where none are.

    A group that is sent together is prepared one by one. It is waited for as long as it takes to run as a whole, so the
    first of it is answered at the latest after twice the time of a group that came at once. An urgent case is less patient.
    """
    if situation.company == 0:
        return situation.now
    group = sum(case.image_count for case in chosen) + situation.company
    patience_s = latency.seconds(min(group, ceilings.images))
    if any(case.lane == "urgent" for case in chosen):
        patience_s /= URGENT_WEIGHT
    return (situation.now if situation.held_since is None else situation.held_since) + patience_s
