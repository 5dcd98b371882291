"""A ring of buffers that are used again, each only when the device has done with what lies in it. Knows no device."""

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

Slot = TypeVar("Slot")


class Event(Protocol):
    """A point in the work of a device's stream."""

    def synchronize(self) -> None:
        """Return when the device has passed it."""
        ...


class Ring(Generic[Slot]):
    """Hands out the slot that has been back for longest, so that waiting for the device is rare."""

    def __init__(self, slots: Iterable[Slot]) -> None:
        self._free: deque[tuple[Slot, Event | None]] = deque((slot, None) for slot in slots)
        self._changed = threading.Condition()

    def take(self) -> Slot:
        """Take a slot; waits for whoever holds the last one, then for the device to have done with it."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._free))
            slot, is_done = self._free.popleft()
        if is_done is not None:
            is_done.synchronize()
        return slot

    @contextmanager
    def taking(self) -> Iterator[Slot]:
        """Take a slot for a block that fills it; where the block raises, the slot is back."""
        slot = self.take()
        try:
            yield slot
        except BaseException:
            self.give_back(slot, None)
            raise

    def give_back(self, slot: Slot, is_done: Event | None) -> None:
        """Return a slot: it is used again once the event has passed; at once where there is none."""
        with self._changed:
            self._free.append((slot, is_done))
            self._changed.notify()
