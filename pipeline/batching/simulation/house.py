"""A house in virtual time: images come, a rule fires batches on devices, and what became of every image is written down."""

import heapq
import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pipeline.batching.simulation.cost import BREAKS_AFTER, Cost
from pipeline.batching.simulation.workload import AFTER_S, Image

Kind = Literal["arrival", "end", "look"]
SMALLEST_STEP_S = 1e-6
"""A look that is wanted now comes so much later: two events of one moment do not go round for ever."""


class Rule(Protocol):
    """Who decides. Told what happens; asked to look after every event."""

    def begin(self, house: "House") -> None:
        """Take over a house before its first event."""

    def arrived(self, number: int) -> None:
        """An image joined the line."""

    def ended(self, run: "Run") -> None:
        """A batch is over, or broke for want of memory; its device is idle."""

    def look(self) -> None:
        """Fire what should be fired."""


@dataclass(frozen=True, slots=True)
class Run:
    """One batch on one device."""

    device: int
    numbers: tuple[int, ...]
    began_at: float
    ends_at: float
    has_room: bool
    """False where it breaks for want of memory."""


@dataclass(slots=True)
class Fates:
    """What became of the images, by number."""

    done_at: dict[int, float] = field(default_factory=dict)
    """When its batch was over."""
    given_up_at: dict[int, float] = field(default_factory=dict)
    """When a rule refused it, or put it off: a missed answer, whatever comes later."""
    runs: list[Run] = field(default_factory=list)


class House:
    """Devices, a clock and the events to come."""

    def __init__(self, images: Sequence[Image], cost: Cost, *, devices: int, seed: int) -> None:
        self.images, self.cost, self.devices = images, cost, devices
        self.now, self.fates = 0.0, Fates()
        self.dice = random.Random(f"devices {seed}")  # noqa: S311 - a simulation, not a secret
        self.running: dict[int, Run] = {}
        self._admitted = sorted(image.admitted_at for image in images)
        self._arrived_count = 0
        self._events: list[tuple[float, int, Kind, int]] = [
            (image.arrives_at, number, "arrival", number) for number, image in enumerate(images)
        ]
        self._event_count = len(self._events)
        self._look_at: float | None = None

    def idle(self) -> list[int]:
        """Devices that run nothing."""
        return [device for device in range(self.devices) if device not in self.running]

    def company(self) -> int:
        """Images that were sent and do not stand in line yet."""
        return bisect_right(self._admitted, self.now) - self._arrived_count

    def fire(self, device: int, numbers: Sequence[int]) -> Run:
        """Start a batch on an idle device; the largest shape aboard says what it costs."""
        if device in self.running or not numbers:
            raise ValueError("a batch needs an idle device and somebody aboard")
        scale = max(self.images[number].scale for number in numbers)
        duration_s = scale * self.cost.draw_s(len(numbers), self.dice, at_s=self.now)
        has_room = self.cost.fits(len(numbers), at_s=self.now)
        run = Run(device, tuple(numbers), self.now, self.now + duration_s * (1 if has_room else BREAKS_AFTER), has_room)
        self.running[device] = run
        self.fates.runs.append(run)
        self._add(run.ends_at, "end", device)
        return run

    def give_up(self, number: int) -> None:
        """Write down that an image gets no full answer in time."""
        self.fates.given_up_at.setdefault(number, self.now)

    def look_again_at(self, at_s: float) -> None:
        """Ask the rule at a moment, or earlier."""
        at_s = max(at_s, self.now + SMALLEST_STEP_S)
        if self._look_at is None or at_s < self._look_at or self._look_at <= self.now:
            self._look_at = at_s
            self._add(at_s, "look", 0)

    def live(self, rule: Rule) -> Fates:
        """Let everything happen; return what became of the images."""
        heapq.heapify(self._events)
        rule.begin(self)
        while self._events:
            self.now, _, kind, subject = heapq.heappop(self._events)
            if kind == "arrival":
                self._arrived_count += 1
                rule.arrived(subject)
            elif kind == "end":
                rule.ended(self._end(subject))
            elif self._look_at is not None and self._look_at <= self.now:
                self._look_at = None
            rule.look()
        return self.fates

    def _end(self, device: int) -> Run:
        run = self.running.pop(device)
        if run.has_room:
            for number in run.numbers:
                self.fates.done_at.setdefault(number, self.now)
        return run

    def _add(self, at_s: float, kind: Kind, subject: int) -> None:
        heapq.heappush(self._events, (at_s, self._event_count, kind, subject))
        self._event_count += 1


def answered_in_s(image: Image, done_at: float) -> float:
    """From sending to the answer, for an image whose batch was over at a moment."""
    return done_at - image.admitted_at + AFTER_S
