"""Rules with a window: wait so long, or for so many, and fire.

Ours to write, from their documentation and source; each docstring names whose rule it is. What breaks for want of memory fails with
everybody aboard, as an exception out of a batched forward pass does there.
"""

from collections import deque

from pipeline.batching.simulation.cost import LIMIT
from pipeline.batching.simulation.house import House, Run

WINDOW_S = 2.0
ROUNDING_S = 1e-9
"""A look that was asked for at the end of a window comes at its end, not a rounding error before."""


class InOrder:
    """A line that is served in the order of arrival; the ground of the others' rules."""

    house: House

    def begin(self, house: House) -> None:
        """Start with an empty line."""
        self.house, self.waiting = house, deque[int]()

    def arrived(self, number: int) -> None:
        """Join the end of the line."""
        self.waiting.append(number)

    def ended(self, run: Run) -> None:
        """Nobody tries again what broke."""
        if not run.has_room:
            for number in run.numbers:
                self.house.give_up(number)

    def take(self, count: int) -> list[int]:
        """Take the head of the line."""
        return [self.waiting.popleft() for _ in range(min(count, len(self.waiting)))]

    def age_s(self, number: int) -> float:
        """For how long an image has waited."""
        return self.house.now - self.house.images[number].arrives_at


class CommittedWindow(InOrder):
    """A window opens with the first image; closed, it is a batch, also while every device is busy (celery-batches, Ray Serve)."""

    def begin(self, house: House) -> None:
        """Start with no window open."""
        super().begin(house)
        self.closed, self.opened_at = deque[list[int]](), 0.0

    def arrived(self, number: int) -> None:
        """Join the open window, or open one."""
        if not self.waiting:
            self.opened_at = self.house.now
        super().arrived(number)
        if len(self.waiting) == LIMIT:
            self.closed.append(self.take(LIMIT))

    def look(self) -> None:
        """Close the window if its time is over; hand closed batches to idle devices."""
        if self.waiting and self.house.now >= self.opened_at + WINDOW_S - ROUNDING_S:
            self.closed.append(self.take(LIMIT))
        elif self.waiting:
            self.house.look_again_at(self.opened_at + WINDOW_S)
        for device in self.house.idle()[: len(self.closed)]:
            self.house.fire(device, self.closed.popleft())


class PulledWindow(InOrder):
    """One idle worker at a time takes the first image and then waits for company (TorchServe)."""

    def begin(self, house: House) -> None:
        """Start with nobody waiting for company."""
        super().begin(house)
        self.held, self.opened_at = list[int](), 0.0

    def look(self) -> None:
        """Fill the batch in the hands of the worker whose turn it is, and fire it when it is time."""
        for device in self.house.idle():
            if not self.held and self.waiting:
                self.opened_at = self.house.now
            self.held += self.take(LIMIT - len(self.held))
            if not self.held:
                return
            if len(self.held) < LIMIT and self.house.now < self.opened_at + WINDOW_S - ROUNDING_S:
                self.house.look_again_at(self.opened_at + WINDOW_S)
                return
            self.house.fire(device, self.held)
            self.held = []


class WindowEach(InOrder):
    """Every idle worker has a window of its own, so a trickle is dealt out among them (LitServe, mosec)."""

    def begin(self, house: House) -> None:
        """Start with nothing in anybody's hands."""
        super().begin(house)
        self.held: dict[int, list[int]] = {device: [] for device in range(house.devices)}
        self.opened_at = [0.0] * house.devices
        self.next_device = 0

    def look(self) -> None:
        """Deal the line out among idle workers in turn; fire whose window is over."""
        idle = self.house.idle()
        self._deal(idle)
        for device in idle:
            batch = self.held[device]
            if not batch:
                continue
            if len(batch) == LIMIT or self.house.now >= self.opened_at[device] + WINDOW_S - ROUNDING_S:
                self.house.fire(device, batch)
                self.held[device] = []
            else:
                self.house.look_again_at(self.opened_at[device] + WINDOW_S)

    def _deal(self, idle: list[int]) -> None:
        while self.waiting and (open_ones := [device for device in idle if len(self.held[device]) < LIMIT]):
            device = next((each for each in open_ones if each >= self.next_device), open_ones[0])
            self.next_device = device + 1
            if not self.held[device]:
                self.opened_at[device] = self.house.now
            self.held[device].append(self.waiting.popleft())


class Delay(InOrder):
    """An idle device waits until the oldest image is so old, or the batch is full (Triton); 0 s is its default.

    Parameters
    ----------
    delay_s
        `max_queue_delay_microseconds`.
    reject_after_s
        A queue policy that refuses what has waited for longer; judged when the batcher looks.
    """

    def __init__(self, delay_s: float, reject_after_s: float | None = None) -> None:
        self.delay_s, self.reject_after_s = delay_s, reject_after_s

    def look(self) -> None:
        """Refuse the old, then serve idle devices."""
        while self.reject_after_s is not None and self.waiting and self.age_s(self.waiting[0]) > self.reject_after_s:
            self.house.give_up(self.waiting.popleft())
        for device in self.house.idle():
            if not self.waiting:
                return
            if len(self.waiting) < LIMIT and self.age_s(self.waiting[0]) < self.delay_s - ROUNDING_S:
                self.house.look_again_at(self.house.images[self.waiting[0]].arrives_at + self.delay_s)
                return
            self.house.fire(device, self.take(LIMIT))


class SameShapeRun(InOrder):
    """One line in order; a batch ends before the first image of another shape (Triton without ragged batches)."""

    def look(self) -> None:
        """Fire runs of one shape."""
        for device in self.house.idle():
            if not self.waiting:
                return
            scale = self.house.images[self.waiting[0]].scale
            batch: list[int] = []
            while self.waiting and len(batch) < LIMIT and self.house.images[self.waiting[0]].scale == scale:
                batch.append(self.waiting.popleft())
            self.house.fire(device, batch)


class StrictLanes(InOrder):
    """Urgent images always first, however long the others wait (priority levels); fires when a device is idle."""

    def begin(self, house: House) -> None:
        """Start with two empty lines."""
        super().begin(house)
        self.urgent = deque[int]()

    def arrived(self, number: int) -> None:
        """Join the line of its lane."""
        (self.urgent if self.house.images[number].lane == "urgent" else self.waiting).append(number)

    def look(self) -> None:
        """Fill up urgent ones with others."""
        for device in self.house.idle():
            batch = [self.urgent.popleft() for _ in range(min(LIMIT, len(self.urgent)))]
            batch += self.take(LIMIT - len(batch))
            if not batch:
                return
            self.house.fire(device, batch)
