"""Virtual time: tasks that sleep, hosts that crash and freeze, and a trace of everything that happened."""

import heapq
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from itertools import count

NOON = 1_767_355_200.0
"""2026-01-02 12:00 UTC: when every run begins, in Unix seconds."""

Steps = Generator[float, None, None]
"""What a task does; it yields for how many seconds it sleeps."""


@dataclass(slots=True, eq=False)
class Host:
    """One process: its tasks end when it crashes, stand still while it is frozen, and read its own clock."""

    name: str
    skew_s: float = 0.0
    """How far its clock is ahead."""
    is_up: bool = True
    frozen_until: float = 0.0
    last_disturbed_at: float = -1.0
    """When it was last frozen, or away from the ledger."""
    tasks: list["Task"] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Task:
    """One thread of a host."""

    host: Host
    steps: Steps
    turn: int = 0
    """Wake-ups of older turns are void."""
    is_idle: bool = False
    """It sleeps because there is nothing to do, and may be woken."""


def _nothing() -> Steps:
    yield 0.0


_NOTHING = _nothing()


class Schedule:
    """Runs tasks in the order of their moments; two of one moment in the order in which they were asked for."""

    def __init__(self) -> None:
        self.now = NOON
        self.trace: list[str] = []
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def at(self, moment: float, do: Callable[[], None]) -> None:
        """Do something at a moment."""
        heapq.heappush(self._queue, (max(moment, self.now), next(self._order), do))

    def note(self, who: str, what: str) -> None:
        """Write a line of the trace."""
        self.trace.append(f"{self.now - NOON:.4f} {who}: {what}")

    def start(self, host: Host, steps: Callable[[Task], Steps]) -> Task:
        """Begin a task at once."""
        task = Task(host, _NOTHING)
        task.steps = steps(task)
        host.tasks.append(task)
        self.wake(task)
        return task

    def wake(self, task: Task, after_s: float = 0.0) -> None:
        """Let a task go on, however long it meant to sleep."""
        task.turn += 1
        turn = task.turn
        self.at(self.now + after_s, lambda: self._step(task, turn))

    def end(self, host: Host) -> None:
        """A host dies: nothing of it goes on."""
        host.is_up = False
        for task in host.tasks:
            task.turn += 1
        host.tasks.clear()

    def run(self, *, most_steps: int, is_done: Callable[[], bool]) -> None:
        """Let time pass, until it is done or takes too long."""
        for _ in range(most_steps):
            if not self._queue or is_done():
                return
            self.now, _, do = heapq.heappop(self._queue)
            do()

    def _step(self, task: Task, turn: int) -> None:
        if task.turn != turn:
            return
        if task.host.frozen_until > self.now:
            self.at(task.host.frozen_until, lambda: self._step(task, turn))
            return
        sleep_s = next(task.steps)
        # A task that ended its own host is not scheduled again.
        if task.turn == turn:
            self.wake(task, sleep_s)
