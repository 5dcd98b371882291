"""The cases of one doorbell: one commit while they are quick, and nobody waits behind a slow one."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from pipeline.persistence.ledger.claims import Claimed
from tests.switches import switches_of
from tests.unit.workers.claims import claimed as case
from workers.group import SLOW_S, Group, Watch


@pytest.fixture
def watch() -> Iterator[Watch]:
    watch = Watch()
    yield watch
    watch.close()


class Book:
    """What was written, and when."""

    def __init__(self) -> None:
        self.commits: list[tuple[int, ...]] = []
        self.begun = time.monotonic()
        self.at: dict[int, float] = {}

    def write(self, done: Sequence[int]) -> None:
        self.commits.append(tuple(done))
        self.at |= dict.fromkeys(done, time.monotonic() - self.begun)


def number_of(each: Claimed) -> int:
    return each.case_id.int


def test_quick_cases_are_done_in_order_and_written_in_one_commit() -> None:
    book = Book()

    Group([case(number) for number in range(5)], number_of, book.write).run()

    assert book.commits == [(0, 1, 2, 3, 4)]


def test_a_case_alone_is_written_at_once() -> None:
    book = Book()

    Group([case(7)], number_of, book.write).run()

    assert book.commits == [(7,)]


def test_what_was_dealt_with_already_is_not_written() -> None:
    book = Book()

    Group([case(number) for number in range(4)], lambda each: number_of(each) if number_of(each) % 2 else None, book.write).run()

    assert book.commits == [(1, 3)]


def test_nothing_finished_is_no_commit() -> None:
    book = Book()

    Group([case(1), case(2)], lambda _: None, book.write).run()

    assert book.commits == []


def test_finished_cases_do_not_wait_long_for_company() -> None:
    book = Book()

    def take_a_little(each: Claimed) -> int:
        time.sleep(0.06)
        return number_of(each)

    Group([case(number) for number in range(6)], take_a_little, book.write).run()

    assert sum(len(commit) for commit in book.commits) == 6
    assert max(len(commit) for commit in book.commits) <= 3


@pytest.mark.parametrize("slow", [0, 2, 4])
def test_nobody_waits_behind_a_slow_case(watch: Watch, slow: int) -> None:
    book, others_written = Book(), threading.Event()

    def write(done: Sequence[int]) -> None:
        book.write(done)
        if sum(len(commit) for commit in book.commits) == 4:
            others_written.set()

    def do(each: Claimed) -> int:
        if number_of(each) == slow:
            assert others_written.wait(10)
        return number_of(each)

    group = Group([case(number) for number in range(5)], do, write)
    with watch.over(group):
        group.run()

    # The slow one could end only after all others were written.
    assert sorted(book.at) == [0, 1, 2, 3, 4]
    assert book.commits[-1] == (slow,)
    assert max(at for number, at in book.at.items() if number != slow) < 4 * SLOW_S


def test_several_slow_cases_run_side_by_side(watch: Watch) -> None:
    book, together = Book(), threading.Barrier(3)

    def do(each: Claimed) -> int:
        together.wait(10)
        return number_of(each)

    group = Group([case(number) for number in range(3)], do, book.write)
    with watch.over(group):
        group.run()

    assert sorted(book.at) == [0, 1, 2]


def test_a_group_ends_when_the_last_case_is_written_whoever_did_it(watch: Watch) -> None:
    book = Book()
    slow_ones: dict[int, float] = {0: 2 * SLOW_S, 1: 4 * SLOW_S}

    def do(each: Claimed) -> int:
        time.sleep(slow_ones.get(number_of(each), 0))
        return number_of(each)

    group = Group([case(number) for number in range(3)], do, book.write)
    with watch.over(group):
        group.run()

    assert sorted(book.at) == [0, 1, 2]


def watching_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "watch"}


def eventually(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + 5
    while not holds() and time.monotonic() < until:
        time.sleep(0.01)
    return holds()


def test_a_closed_watch_leaves_no_thread() -> None:
    before = watching_threads()
    watch = Watch()
    (mine,) = watching_threads() - before

    watch.close()

    assert eventually(lambda: not mine.is_alive())


def test_groups_that_come_and_go_do_not_wake_the_watch() -> None:
    before = watching_threads()
    watch = Watch()
    (mine,) = watching_threads() - before
    begun = switches_of(mine)

    for number in range(200):
        with watch.over(Group([case(number)], number_of, Book().write)):
            time.sleep(0.001)
    switches = switches_of(mine) - begun
    watch.close()

    # It looks four times a second, not each time.
    assert switches < 50
