"""Working through the cases of one doorbell: one after the other while they are quick, side by side as soon as one is not.

Cases that became ready together share a claim, a commit and warm caches. They share no fate: each is put back or fails
alone, and behind a slow one the rest get a thread of their own.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

from pipeline.persistence.ledger.claims import Claimed

Done = TypeVar("Done")

SLOW_S = 0.25
"""A case that takes longer is no longer waited for by those behind it."""
WRITE_EVERY_S = 0.1
"""What is finished waits for company this long at most."""


class Group(Generic[Done]):
    """Some claimed cases on their way through one pool."""

    def __init__(self, cases: Sequence[Claimed], do: Callable[[Claimed], Done | None], write: Callable[[Sequence[Done]], None]) -> None:
        """Take the cases, what to do with each (None: it is dealt with already) and what writes the finished ones."""
        self._left, self._do, self._write = deque(cases), do, write
        self._done: list[Done] = []
        self._taking = threading.Lock()
        self._helpers: list[threading.Thread] = []
        self._moved_at = self._written_at = time.monotonic()

    def run(self) -> None:
        """Do and write all cases; returns when the last is written, whoever did it."""
        self._work()
        for helper in self._helpers:
            helper.join()

    def help_if_stuck(self) -> None:
        """Start a thread for what waits behind a slow case."""
        with self._taking:
            is_stuck = time.monotonic() - self._moved_at >= SLOW_S
            if not is_stuck or not (self._left or self._done):
                return
            self._moved_at = time.monotonic()
            helper = threading.Thread(target=self._work, name="helper", daemon=True)
            self._helpers.append(helper)
        helper.start()

    def _work(self) -> None:
        self._write_done()
        while (case := self._next()) is not None:
            done = self._do(case)
            with self._taking:
                self._moved_at = time.monotonic()
                if done is not None:
                    self._done.append(done)
                is_due = not self._left or self._moved_at - self._written_at >= WRITE_EVERY_S
            if is_due:
                self._write_done()

    def _next(self) -> Claimed | None:
        with self._taking:
            self._moved_at = time.monotonic()
            return self._left.popleft() if self._left else None

    def _write_done(self) -> None:
        with self._taking:
            done, self._done = self._done, []
            self._written_at = time.monotonic()
        if done:
            self._write(done)


class Watch:
    """Looks after the groups of a process: one thread, asleep while there are none."""

    def __init__(self) -> None:
        self._groups: set[Group[object]] = set()
        self._changed = threading.Condition()
        self._is_open = True
        self._is_idle = False
        threading.Thread(target=self._look, name="watch", daemon=True).start()

    @contextmanager
    def over(self, group: Group[Done]) -> Iterator[None]:
        """Look after a group inside the block."""
        with self._changed:
            self._groups.add(group)  # type: ignore[arg-type]
            # One that looks already comes back by itself.
            if self._is_idle:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._groups.discard(group)

    def close(self) -> None:
        """Look no more."""
        with self._changed:
            self._is_open = False
            self._changed.notify()

    def _look(self) -> None:
        while True:
            with self._changed:
                self._is_idle = True
                self._changed.wait_for(lambda: self._groups or not self._is_open)
                self._is_idle = False
                if not self._is_open:
                    return
                self._changed.wait_for(lambda: not self._is_open, SLOW_S)
                groups = list(self._groups)
            for group in groups:
                group.help_if_stuck()
