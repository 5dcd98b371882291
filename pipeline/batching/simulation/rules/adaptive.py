"""Rules that adapt: to what they measured (BentoML, Clipper), or to the deadlines (Nexus, Clockwork, Symphony).

Ours to write, from their papers and source, with their own defaults where they have some.
"""

from bisect import insort
from collections import deque
from dataclasses import dataclass, field

from pipeline.batching.simulation.cost import LIMIT
from pipeline.batching.simulation.house import SMALLEST_STEP_S, House, Run
from pipeline.batching.simulation.rules.windows import InOrder

OBJECTIVE_S = 25.0
"""What is left of 30 s for line and device."""


@dataclass(slots=True)
class _Dispatcher:
    """One worker's own line, and its fit of a batch's seconds: slope x images + fixed."""

    waiting: deque[int] = field(default_factory=deque)
    runs: deque[tuple[int, float, float]] = field(default_factory=lambda: deque(maxlen=50))
    """Images, seconds, and the head's wait, of the last batches."""
    slope_s: float = 1.0
    fixed_s: float = 1.0
    mean_wait_s: float = 0.0
    fitted_at: float = float("-inf")
    head_waited_s: float = 0.0

    def fit(self) -> None:
        """Least squares; runs of one size alone give the shortest of all solutions."""
        count = len(self.runs)
        x, y = sum(size for size, _, _ in self.runs) / count, sum(seconds for _, seconds, _ in self.runs) / count
        variance = sum((size - x) ** 2 for size, _, _ in self.runs)
        if variance > SMALLEST_STEP_S:
            slope = sum((size - x) * (seconds - y) for size, seconds, _ in self.runs) / variance
            self.slope_s, self.fixed_s = max(slope, SMALLEST_STEP_S), max(y - slope * x, 0.0)
        else:
            self.slope_s, self.fixed_s = x * y / (x * x + 1), y / (x * x + 1)
        self.mean_wait_s = sum(wait for _, _, wait in self.runs) / count


class Cork(InOrder):
    """BentoML's dispatcher: a line for each worker; hold while the batch's added wait stays below the mean wait of late."""

    decay = 0.95
    tick_s = 0.001
    refit_every_s = 5.0

    def begin(self, house: House) -> None:
        """Start every worker with BentoML's first guess."""
        super().begin(house)
        slope_s, fixed_s = min(2.0, OBJECTIVE_S / 15), min(1.0, OBJECTIVE_S / 30)
        self.workers = [_Dispatcher(slope_s=slope_s, fixed_s=fixed_s) for _ in range(house.devices)]

    def arrived(self, number: int) -> None:
        """Go to any worker: they share no line."""
        self.house.dice.choice(self.workers).waiting.append(number)

    def ended(self, run: Run) -> None:
        """Note what the batch took; fit anew every few seconds."""
        super().ended(run)
        worker = self.workers[run.device]
        worker.runs.append((len(run.numbers), run.ends_at - run.began_at, worker.head_waited_s))
        if self.house.now - worker.fitted_at >= self.refit_every_s:
            worker.fitted_at = self.house.now
            worker.fit()

    def look(self) -> None:
        """Let every worker look at its own line."""
        for device, worker in enumerate(self.workers):
            while worker.waiting and self._is_hopeless(device, worker):
                self.house.give_up(worker.waiting.popleft())
            if worker.waiting:
                self._serve(device, worker)

    def _is_hopeless(self, device: int, worker: _Dispatcher) -> bool:
        count, waited_s = len(worker.waiting), self.age_s(worker.waiting[0])
        if count > 1:
            return waited_s + worker.slope_s * count + worker.fixed_s >= OBJECTIVE_S
        return device in self.house.running and waited_s >= OBJECTIVE_S

    def _serve(self, device: int, worker: _Dispatcher) -> None:
        count, now = len(worker.waiting), self.house.now
        if device in self.house.running:
            self.house.look_again_at(now + 0.05 if count > 1 else now + OBJECTIVE_S - self.age_s(worker.waiting[0]) + self.tick_s)
            return
        added_s = count * (self.age_s(worker.waiting[-1]) + self.tick_s + worker.slope_s)
        if count < LIMIT and added_s <= worker.mean_wait_s * self.decay:
            self.house.look_again_at(now + max(self.tick_s, (worker.mean_wait_s * self.decay - added_s) / count))
            return
        worker.head_waited_s = self.age_s(worker.waiting[0])
        self.house.fire(device, [worker.waiting.popleft() for _ in range(min(LIMIT, count))])


class ByDeadline(InOrder):
    """A line in the order of deadlines; what is past its own is dropped. The ground of the rules below."""

    def begin(self, house: House) -> None:
        """Start with an empty line."""
        super().begin(house)
        self.line: list[tuple[float, int]] = []

    def arrived(self, number: int) -> None:
        """Take its place by deadline."""
        insort(self.line, (self.house.images[number].done_by, number))

    def drop(self, count: int) -> None:
        """Give up the head of the line."""
        for _, number in self.line[:count]:
            self.house.give_up(number)
        del self.line[:count]

    def fire_head(self, device: int, count: int) -> None:
        """Start a batch with the head of the line."""
        self.house.fire(device, [number for _, number in self.line[:count]])
        del self.line[:count]


class Aimd(ByDeadline):
    """Clipper: a limit for each replica, one more after a batch within the objective, a tenth less after one beyond it."""

    def begin(self, house: House) -> None:
        """Start every replica at one image."""
        super().begin(house)
        self.limit = [1.0] * house.devices

    def ended(self, run: Run) -> None:
        """Move the replica's limit."""
        super().ended(run)
        limit = self.limit[run.device]
        if run.ends_at - run.began_at > OBJECTIVE_S:
            self.limit[run.device] = max(1.0, 0.9 * limit)
        elif len(run.numbers) >= int(limit):
            self.limit[run.device] = min(LIMIT, limit + 1)

    def look(self) -> None:
        """Drop what is late; fill idle replicas up to their limits."""
        self.drop(sum(done_by <= self.house.now for done_by, _ in self.line))
        for device in self.house.idle():
            if not self.line:
                return
            self.fire_head(device, min(int(self.limit[device]), len(self.line)))


class EarlyDrop(ByDeadline):
    """Nexus, Clockwork: knows the mean cost; drops heads for the sake of the largest batch that is in time, and fires at once."""

    safety = 1.1

    def _fits(self, images: int, done_by: float) -> bool:
        return self.house.now + self.safety * self.house.cost.mean_s(images) <= done_by

    def plan(self) -> tuple[int, int]:
        """Heads to drop, and the size of the batch after them: the most images, then the fewest drops."""
        best = (0, 0)
        for dropped, (done_by, _) in enumerate(self.line):
            most = min(LIMIT, len(self.line) - dropped)
            if most <= best[1]:
                break
            size = next((size for size in range(most, best[1], -1) if self._fits(size, done_by)), 0)
            if size > best[1]:
                best = (dropped, size)
        return best if best[1] else (len(self.line), 0)

    def look(self) -> None:
        """Serve idle devices."""
        for device in self.house.idle():
            self.serve(device)

    def serve(self, device: int) -> None:
        """Drop and fire as planned."""
        dropped, size = self.plan()
        self.drop(dropped)
        if size:
            self.fire_head(device, size)


class Deferred(EarlyDrop):
    """Symphony: fires as late as the head's deadline allows one image more, or when the batch is full."""

    def look(self) -> None:
        """Serve idle devices whose time has come."""
        for device in self.house.idle():
            if not self.line:
                return
            latest = self.line[0][0] - self.safety * self.house.cost.mean_s(min(LIMIT, len(self.line) + 1))
            if len(self.line) < LIMIT and self.house.now < latest - SMALLEST_STEP_S:
                self.house.look_again_at(latest)
                return
            self.serve(device)
