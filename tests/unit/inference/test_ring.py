"""Slots that are used again: the device is played by events that pass when the test says so."""

import threading
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.inference.ring import Ring


@dataclass
class Point:
    """An event of a device; waiting for it is noted, and ends when the device has passed it."""

    passed: threading.Event = field(default_factory=threading.Event)
    is_awaited: threading.Event = field(default_factory=threading.Event)

    def synchronize(self) -> None:
        self.is_awaited.set()
        assert self.passed.wait(30)


def taking(ring: Ring[str]) -> tuple[threading.Thread, list[str]]:
    """A thread that takes a slot, and what it got."""
    got: list[str] = []
    thread = threading.Thread(target=lambda: got.append(ring.take()))
    thread.start()
    return thread, got


def test_slots_that_nobody_has_used_are_there_at_once_and_in_turn() -> None:
    ring = Ring(["a", "b", "c"])
    assert [ring.take() for _ in range(3)] == ["a", "b", "c"]


def test_a_slot_is_used_again_only_after_its_event() -> None:
    ring, event = Ring(["a"]), Point()
    ring.give_back(ring.take(), event)
    thread, got = taking(ring)
    assert event.is_awaited.wait(30)
    assert got == []
    event.passed.set()
    thread.join(30)
    assert got == ["a"]


def test_who_finds_no_slot_waits_for_one_to_come_back() -> None:
    ring = Ring(["a"])
    held = ring.take()
    thread, got = taking(ring)
    assert got == []
    ring.give_back(held, None)
    thread.join(30)
    assert got == ["a"]


def test_the_slot_that_has_been_back_for_longest_comes_next_and_the_others_events_are_not_awaited() -> None:
    ring, events = Ring(["a", "b"]), [Point(), Point()]
    for event in events:
        ring.give_back(ring.take(), event)
    # "a" was taken first and came back first, then "b".
    events[0].passed.set()
    assert ring.take() == "a"
    assert not events[1].is_awaited.is_set()


@dataclass
class Lagging:
    """A device that runs what it is given in order, and only when somebody waits."""

    queued: int = 0
    done: int = 0

    def mark(self) -> "Mark":
        self.queued += 1
        return Mark(self, self.queued)


@dataclass
class Mark:
    device: Lagging
    number: int

    def synchronize(self) -> None:
        self.device.done = max(self.device.done, self.number)


@given(slots=st.integers(1, 4), batches=st.integers(1, 30), ahead=st.integers(0, 3))
def test_no_slot_is_overwritten_while_the_device_still_reads_it(slots: int, batches: int, ahead: int) -> None:
    """given a host that stages up to `ahead` batches before it returns the first, then every slot taken has been read to its end"""
    device, read_by = Lagging(), dict[int, int]()
    ring, held = Ring(range(slots)), list[int]()
    for _ in range(batches):
        slot = ring.take()
        assert device.done >= read_by.get(slot, 0)
        held.append(slot)
        while len(held) > min(ahead, slots - 1):
            oldest = held.pop(0)
            mark = device.mark()
            read_by[oldest] = mark.number
            ring.give_back(oldest, mark)


def test_a_slot_whose_filling_failed_is_back() -> None:
    ring = Ring(["a"])
    with pytest.raises(ZeroDivisionError), ring.taking():
        raise ZeroDivisionError
    with ring.taking() as slot:
        assert slot == "a"


def test_a_device_that_is_lost_says_so_where_the_slot_is_taken() -> None:
    class Lost:
        def synchronize(self) -> None:
            raise RuntimeError("the device is lost")

    ring = Ring(["a"])
    ring.give_back(ring.take(), Lost())
    with pytest.raises(RuntimeError, match="lost"):
        ring.take()
