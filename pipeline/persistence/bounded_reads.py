"""Reading from a place that may be slow, silent or stuck, without ever pinning the thread that asks.

A reader is a thread with a connection of its own; whoever asks waits for it as long as it may and no longer. A reader that is
still busy then is given up: it ends by itself when its place lets go of it. So many may be at work or stuck at once, and no more.
"""

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from fsspec.exceptions import FSTimeoutError

from pipeline.errors import SourceBusy, SourceTimeout, SourceUnavailable

STUCK_S = 1.0
"""Where every reader has been with one object for so long, nobody else waits for one."""


class Files(Protocol):
    """The part of an fsspec file system that a reader needs."""

    async_impl: bool

    def cat_file(self, path: str, **options: Any) -> bytes:
        """Read one whole object."""
        ...


class _Order:
    """One object that somebody waits for."""

    def __init__(self, path: str, limit_s: float) -> None:
        self.path, self.limit_s = path, limit_s
        self.is_done = threading.Event()
        self.data = b""
        self.error: Exception | None = None


class _Reader:
    """A thread, and the connection that nobody else uses: few file systems may be used by two threads at once."""

    def __init__(self, open_files: Callable[[], Files]) -> None:
        self._open_files = open_files
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        self.busy_since: float | None = None
        """Monotonic seconds."""
        self.ended = threading.Event()
        threading.Thread(target=self._live, name="source reader", daemon=True).start()

    def begin(self, order: _Order) -> None:
        """Read an object, in the reader's own time."""
        self.busy_since = time.monotonic()
        self._orders.put(order)

    def give_up(self) -> None:
        """End as soon as what is under way has come to an end."""
        self._orders.put(None)

    def _live(self) -> None:
        files: Files | None = None
        while (order := self._orders.get()) is not None:
            try:
                files = files or self._open_files()
                # What runs on an event loop is cancelled there, and its connection closed.
                options = {"timeout": order.limit_s} if files.async_impl else {}
                order.data = files.cat_file(order.path, **options)
            except FileNotFoundError as error:
                order.error = error
            except Exception as error:  # whatever a library raises: it goes to whoever asked
                order.error, files = error, None
            order.is_done.set()
        self.ended.set()


class BoundedReads:
    """Reads whole objects of one place, each within a time that its caller names. Thread-safe."""

    def __init__(self, open_files: Callable[[], Files], *, most: int) -> None:
        """Take how to open the place (called by each reader for itself, and only when it is first used), and the most readers."""
        self._open_files, self._most = open_files, most
        self._free: list[_Reader] = []
        self._at_work: set[_Reader] = set()
        self._changed = threading.Condition()

    def read(self, path: str, *, limit_s: float) -> bytes:
        """Read one object.

        Raises
        ------
        SourceBusy
            All readers are with other objects, and do not move.
        SourceTimeout
            The object was not here in time.
        OSError
            The file system says why not.
        SourceUnavailable
            It says so in its library's own words.
        """
        until = time.monotonic() + limit_s
        reader = self._take(until)
        order = _Order(path, max(0.001, until - time.monotonic()))
        reader.begin(order)
        in_time = order.is_done.wait(order.limit_s)
        with self._changed:
            if in_time and not isinstance(order.error, FSTimeoutError):
                self._at_work.discard(reader)
                self._free.append(reader)
            else:
                reader.give_up()
            self._changed.notify()
        if not in_time or isinstance(order.error, TimeoutError):
            raise SourceTimeout("the object was not here in time", limit_s=round(limit_s, 1)) from order.error
        if isinstance(order.error, OSError):
            raise order.error
        if order.error is not None:
            raise SourceUnavailable("the place did not give the object", kind=type(order.error).__name__) from order.error
        return order.data

    def _take(self, until: float) -> _Reader:
        with self._changed:
            while True:
                self._at_work = {each for each in self._at_work if not each.ended.is_set()}
                if not self._free and len(self._at_work) < self._most:
                    self._free.append(_Reader(self._open_files))
                if self._free:
                    reader = self._free.pop()
                    self._at_work.add(reader)
                    return reader
                now = time.monotonic()
                if now >= until or all(now - (each.busy_since or now) >= STUCK_S for each in self._at_work):
                    raise SourceBusy("the place's readers are all held up", reader_count=len(self._at_work))
                self._changed.wait(min(STUCK_S, until - now))
