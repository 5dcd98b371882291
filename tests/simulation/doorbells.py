"""Redis as it can be at its worst: messages late, lost, doubled and in another order, emptied, replaced, away."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self
from uuid import UUID

import redis
from kombu.exceptions import OperationalError

from pipeline.errors import QueueUnavailable
from pipeline.flow import Pool
from pipeline.persistence.waiting_line import Waiting
from tests.simulation.schedule import Schedule
from workers.app import VISIBILITY_S

USUAL_DELAY_S = 0.02


@dataclass(frozen=True, slots=True)
class Ways:
    """How messages travel."""

    lost: float = 0.0
    doubled: float = 0.0
    late: float = 0.0
    """Chances for each message; a late one takes up to `late_s`."""
    late_s: float = 8.0


@dataclass(slots=True, eq=False)
class Letter:
    """One message in a queue."""

    pool: Pool
    priority: int
    order: int
    arguments: dict[str, Any]
    visible_at: float
    taken_at: float = 0.0
    due_back_at: float = 0.0
    """When another worker may have it, while one holds it unacknowledged."""


@dataclass(slots=True)
class Redis:
    """Queues, unacknowledged messages, one waiting line and the sweeper's mark."""

    schedule: Schedule
    dice: random.Random
    ways: Ways
    queued: list[Letter] = field(default_factory=list)
    unacked: list[Letter] = field(default_factory=list)
    line: dict[UUID, Waiting] = field(default_factory=dict)
    mark: str | None = None
    run_id: int = 1
    is_up: bool = True
    lost_count: int = 0
    late_count: int = 0
    sent_count: int = 0
    wake: Callable[[Pool], None] = lambda _: None
    """Told when a message can be taken."""
    joined: Callable[[int], None] = lambda _: None
    """Told how many cases joined the line."""

    # What `workers.doorbell.ring` asks of a Celery application

    def send_task(self, _name: str, *, kwargs: dict[str, Any], queue: str, priority: int, **_: object) -> None:
        if not self.is_up:
            raise OperationalError("away")
        for _copy in range(2 if self.dice.random() < self.ways.doubled else 1):
            self.sent_count += 1
            if self.dice.random() < self.ways.lost:
                self.lost_count += 1
                self.schedule.note("redis", f"loses {queue} {kwargs['publish_no']}")
                continue
            is_late = self.dice.random() < self.ways.late
            self.late_count += is_late
            delay_s = self.dice.uniform(0.0, self.ways.late_s if is_late else USUAL_DELAY_S)
            letter = Letter(Pool(queue), priority, self.sent_count, kwargs, self.schedule.now + delay_s)
            self.queued.append(letter)
            self.schedule.at(letter.visible_at, lambda pool=letter.pool: self.wake(pool))  # type: ignore[misc]

    # Workers

    def take(self, pool: Pool) -> Letter | None:
        """The next message of a pool's queue; it stays unacknowledged until it is done."""
        if not self.is_up:
            return None
        self._give_back_unacked()
        ready = [each for each in self.queued if each.pool is pool and each.visible_at <= self.schedule.now]
        if not ready:
            return None
        letter = min(ready, key=lambda each: (each.priority, each.order))
        self.queued.remove(letter)
        letter.taken_at, letter.due_back_at = self.schedule.now, self.schedule.now + VISIBILITY_S[pool]
        self.unacked.append(letter)
        return letter

    def done(self, letter: Letter) -> None:
        """Acknowledge a message; nothing where Redis was emptied meanwhile."""
        if letter in self.unacked:
            self.unacked.remove(letter)

    def _give_back_unacked(self) -> None:
        due = [each for each in self.unacked if each.due_back_at <= self.schedule.now]
        for letter in due:
            self.unacked.remove(letter)
            letter.order = -letter.order
            self.queued.append(letter)

    def speaks_of(self, case_id: UUID, pool: Pool) -> bool:
        """Whether a message for a case is still on its way to a worker."""
        return any(each.pool is pool and str(case_id) in each.arguments["case_ids"] for each in self.queued)

    # Faults

    def lose_some_of(self, pool: Pool, chance: float) -> None:
        """Of what a dying worker had taken, some was never written down as taken."""
        gone = [each for each in self.unacked if each.pool is pool and self.dice.random() < chance]
        self.lost_count += len(gone)
        for letter in gone:
            self.unacked.remove(letter)

    def empty(self) -> None:
        """FLUSHALL."""
        self.lost_count += len(self.queued)
        self.queued.clear()
        self.unacked.clear()
        self.line.clear()
        self.mark = None

    def go(self) -> None:
        """kill -9."""
        self.is_up = False

    def come(self, *, is_empty: bool) -> None:
        """Start again, with or without what was in it."""
        self.is_up, self.run_id = True, self.run_id + 1
        if is_empty:
            self.empty()

    # What the sweeper asks of redis-py

    def pipeline(self, *, transaction: bool) -> "Pipeline":
        return Pipeline(self)


class Pipeline:
    """Commands that are answered together."""

    def __init__(self, server: Redis) -> None:
        self._server, self._asked = server, list[Callable[[], Any]]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._asked.clear()

    def info(self, _section: str) -> None:
        self._asked.append(lambda: {"run_id": self._server.run_id})

    def set(self, _key: str, value: str, *, nx: bool) -> None:
        # What is written is another text each time; which of them it was must not show in the trace.
        self._asked.append(lambda: self._mark(value))

    def _mark(self, value: str) -> None:
        self._server.mark = self._server.mark or value

    def get(self, _key: str) -> None:
        self._asked.append(lambda: self._server.mark)

    def llen(self, key: str) -> None:
        pool, _, step = key.partition("\x06\x16")
        priority = int(step or 0)
        self._asked.append(lambda: sum(each.pool == pool and each.priority == priority for each in self._server.queued))

    def zcount(self, key: str, since: float, _until: str) -> None:
        pool = key.partition(".")[2]
        self._asked.append(lambda: sum(each.pool == pool and each.taken_at >= since for each in self._server.unacked))

    def execute(self) -> list[Any]:
        if not self._server.is_up:
            raise redis.ConnectionError("away")
        return [ask() for ask in self._asked]


class Line:
    """The waiting line as `workers/` asks it, in the order of `pipeline.persistence.waiting_line`."""

    def __init__(self, server: Redis) -> None:
        self._server = server

    def join(self, cases: Iterable[Waiting]) -> bool:
        brought = list(cases)
        if not brought:
            return False
        self._reach()
        was_empty = not self._server.line
        new = [case for case in brought if case.case_id not in self._server.line or case.lane == "compensation"]
        self._server.line.update({case.case_id: case for case in new})
        if new:
            self._server.joined(len(new))
        return was_empty

    def head(self, limit: int) -> list[Waiting]:
        self._reach()
        return sorted(self._server.line.values(), key=lambda case: (case.virtual_deadline, str(case.case_id)))[:limit]

    def take(self, case_ids: Sequence[UUID]) -> list[UUID]:
        self._reach()
        return [case_id for case_id in case_ids if self._server.line.pop(case_id, None)]

    def missing(self, case_ids: Sequence[UUID]) -> list[UUID]:
        self._reach()
        return [case_id for case_id in case_ids if case_id not in self._server.line]

    def _reach(self) -> None:
        if not self._server.is_up:
            raise QueueUnavailable("away")
