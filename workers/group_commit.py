"""Group commit: requests that come while a commit is under way, or are known to come at once, share one.

Alone, a request is committed at once, as if this were not here. Under load one statement and one wait for the disk serve
all that came meanwhile.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

from pipeline.errors import Unavailable

Asked = TypeVar("Asked")
Given = TypeVar("Given")


LINGER_S = 0.02
"""Longest that a commit waits for requests that are known to come: about the time that their bytes take to the disk."""


class _Request(Generic[Asked, Given]):
    """One caller's request and, once it was served, its outcome."""

    __slots__ = ("asked", "outcome")

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.outcome: tuple[Given | Exception] | None = None


class GroupCommit(Generic[Asked, Given]):
    """Serves callers of many threads by few commits."""

    def __init__(self, commit: Callable[[Sequence[Asked]], Sequence[Given | Exception]], *, most: int) -> None:
        """Take the function that commits up to `most` requests and returns an outcome for each, in their order."""
        self._commit, self._most = commit, most
        self._waiting: deque[_Request[Asked, Given]] = deque()
        self._coming_count = 0
        self._changed = threading.Condition()
        self._turn = threading.Lock()

    def __len__(self) -> int:
        """How many requests wait for the next commit."""
        return len(self._waiting)

    @contextmanager
    def coming(self) -> Iterator[None]:
        """Say that this caller is about to ask; a commit waits for it a moment."""
        with self._changed:
            self._coming_count += 1
        try:
            yield
        finally:
            with self._changed:
                self._coming_count -= 1
                self._changed.notify()

    def ask(self, asked: Asked) -> Given:
        """Have a request committed; blocks until it is, or has failed.

        Raises
        ------
        Exception
            What the commit raised or returned for this request. A fault of one request is not passed on to its company:
            unless a server was unavailable, a commit that fails as a whole is done again one by one.
        """
        request: _Request[Asked, Given] = _Request(asked)
        with self._changed:
            self._waiting.append(request)
            self._changed.notify()
        with self._turn:
            # Served meanwhile by whoever had the turn, or first come first served up to and including ours.
            while request.outcome is None:
                self._serve(self._next())
        (outcome,) = request.outcome
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _next(self) -> list[_Request[Asked, Given]]:
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) >= min(self._most, self._coming_count), LINGER_S)
            return [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]

    def _serve(self, group: Sequence[_Request[Asked, Given]]) -> None:
        outcomes: Sequence[Given | Exception]
        try:
            outcomes = self._commit([request.asked for request in group])
        except Unavailable as error:
            outcomes = [error] * len(group)
        except Exception as error:
            if len(group) > 1:
                for request in group:
                    self._serve([request])
                return
            outcomes = [error]
        for request, outcome in zip(group, outcomes, strict=True):
            request.outcome = (outcome,)
