"""The door for everybody who has bytes and wants an image: a pool of decode children."""

import threading
import time
from types import TracebackType
from typing import Self

from pipeline.dicom.child_process import ChildProcess
from pipeline.dicom.errors import DecoderUnavailable, TooLarge
from pipeline.dicom.instance import DecodedInstance, DecodeLimits


class Decoder:
    """Decodes instances in children that may be killed, run out of memory or crash without harm to this process.

    Thread-safe: as many threads decode at once as there are children, the others wait. A child that died, timed
    out or grew too large is replaced at once; its successor loads while others work.
    """

    def __init__(self, *, child_count: int = 2, limits: DecodeLimits | None = None) -> None:
        self._limits = limits or DecodeLimits()
        self._free: list[ChildProcess | None] = [None] * child_count
        """Used from the end. None is a place whose child has not been started yet."""
        self._child_count = child_count
        self._changed = threading.Condition()
        self._is_closed = False
        self._last = threading.local()

    @property
    def peak_rss_bytes(self) -> int:
        """Highest resident memory of the child that answered this thread's last call; 0 before the first."""
        return getattr(self._last, "peak_rss_bytes", 0)

    def warm(self, *, timeout_s: float = 30.0) -> None:
        """Start all children and wait until they are ready, so that the first case does not.

        Raises
        ------
        DecoderUnavailable
            A child could not be started in time.
        """
        until_s = time.monotonic() + timeout_s
        taken: list[ChildProcess] = []
        try:
            while len(taken) < self._child_count:
                taken.append(self._take(until_s))
            for child in taken:
                child.await_ready(until_s=until_s)
        finally:
            for child in taken:
                self._give_back(child)

    def decode(self, data: bytes, *, timeout_s: float) -> DecodedInstance:
        """Decode one instance.

        Parameters
        ----------
        data
            A DICOM file.
        timeout_s
            Bounds the wait for a free child, and then again the decoding itself.

        Raises
        ------
        RejectedInput
            The instance cannot be used; the class, from `pipeline.dicom.errors`, says why.
        DecodeTimedOut
            It took too long. Its child was ended.
        DecoderCrashed
            The child died with it aboard.
        DecoderUnavailable
            No child was free or ready in time.
        """
        if len(data) > self._limits.pixel_budget_bytes:
            raise TooLarge("the file is beyond the limit", limit="pixel_budget_bytes", limit_bytes=self._limits.pixel_budget_bytes)
        until_s = time.monotonic() + timeout_s
        child = self._take(until_s)
        try:
            child.await_ready(until_s=until_s)
            return child.decode(data, timeout_s=timeout_s)
        finally:
            self._last.peak_rss_bytes = child.peak_rss_bytes
            self._give_back(child)

    def child_pids(self) -> tuple[int, ...]:
        """Process ids of the free children."""
        with self._changed:
            return tuple(child.pid for child in self._free if child is not None)

    def close(self) -> None:
        """End all children; those at work end when they are given back."""
        with self._changed:
            self._is_closed = True
            children, self._free = self._free, []
            self._changed.notify_all()
        for child in children:
            if child is not None:
                child.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _take(self, until_s: float) -> ChildProcess:
        with self._changed:
            is_free = self._changed.wait_for(lambda: self._free or self._is_closed, max(0.0, until_s - time.monotonic()))
            if not is_free or self._is_closed:
                raise DecoderUnavailable(is_closed=self._is_closed)
            child = self._free.pop()
        if child is None:
            return self._started()
        if not child.is_alive():  # it was ended while it was free
            child.end()
            return self._started()
        return child

    def _started(self) -> ChildProcess:
        try:
            return ChildProcess(self._limits)
        except OSError as error:
            self._put(None)
            raise DecoderUnavailable("a decode child could not be started", errno=error.errno) from error

    def _give_back(self, child: ChildProcess) -> None:
        if not child.is_spent:
            self._put(child)
            return
        child.end()
        self._put(None if self._is_closed else self._started_or_none())

    def _started_or_none(self) -> ChildProcess | None:
        """The successor of a spent child; where it cannot be started now, the next caller tries again."""
        try:
            return ChildProcess(self._limits)
        except OSError:
            return None

    def _put(self, child: ChildProcess | None) -> None:
        with self._changed:
            if not self._is_closed:
                # A child that still loads goes to the far end: the ready ones are taken first.
                at = len(self._free) if child is not None and child.is_ready else 0
                self._free.insert(at, child)
                self._changed.notify()
                return
        if child is not None:
            child.end()
