"""Group commit: few commits for many callers, and no caller pays for another's fault."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from pipeline.errors import LedgerUnavailable
from workers.group_commit import GroupCommit

PATIENCE_S = 10.0


class Disk:
    """Doubles numbers, one commit at a time; holds the first commit until it is let go."""

    def __init__(self, *, is_held: bool = False) -> None:
        self.commits: list[tuple[int, ...]] = []
        self.is_busy = threading.Event()
        self.go_on = threading.Event()
        self._inside = threading.Lock()
        if not is_held:
            self.go_on.set()

    def commit(self, asked: Sequence[int]) -> Sequence[int | Exception]:
        assert self._inside.acquire(blocking=False), "two commits at once"
        try:
            self.commits.append(tuple(asked))
            self.is_busy.set()
            assert self.go_on.wait(PATIENCE_S)
            if 13 in asked:
                raise ZeroDivisionError
            return [ValueError("odd one out") if number == 7 else 2 * number for number in asked]
        finally:
            self._inside.release()


def test_a_request_alone_is_committed_at_once() -> None:
    disk = Disk()

    assert GroupCommit(disk.commit, most=8).ask(4) == 8
    assert disk.commits == [(4,)]


def test_what_comes_during_a_commit_shares_the_next_and_everybody_gets_the_own_answer() -> None:
    disk = Disk(is_held=True)
    group: GroupCommit[int, int] = GroupCommit(disk.commit, most=8)
    with ThreadPoolExecutor(20) as threads:
        first = threads.submit(group.ask, 100)
        assert disk.is_busy.wait(PATIENCE_S)
        others = {number: threads.submit(group.ask, number) for number in range(20, 39)}
        while len(group) < len(others):
            assert not any(other.done() for other in others.values())
        disk.go_on.set()

        assert first.result(PATIENCE_S) == 200
        assert {number: other.result(PATIENCE_S) for number, other in others.items()} == {number: 2 * number for number in others}

    assert disk.commits[0] == (100,)
    assert [len(commit) for commit in disk.commits[1:]] == [8, 8, 3]


def test_a_commit_waits_a_moment_for_requests_that_are_known_to_come() -> None:
    disk = Disk()
    group: GroupCommit[int, int] = GroupCommit(disk.commit, most=8)
    all_announced = threading.Barrier(5)

    def announced(number: int) -> int:
        with group.coming():
            all_announced.wait(PATIENCE_S)
            return group.ask(number)

    with ThreadPoolExecutor(5) as threads:
        assert list(threads.map(announced, range(5))) == [0, 2, 4, 6, 8]

    assert sorted(number for commit in disk.commits for number in commit) == [0, 1, 2, 3, 4]
    # Threads are woken one by one, so that now and then one misses the moment.
    assert len(disk.commits) <= 3


def test_whoever_was_announced_and_does_not_come_holds_nobody_back() -> None:
    disk = Disk()
    group: GroupCommit[int, int] = GroupCommit(disk.commit, most=8)

    with group.coming(), group.coming():
        assert group.ask(4) == 8


def test_requests_are_served_in_the_order_in_which_they_came() -> None:
    disk = Disk(is_held=True)
    group: GroupCommit[int, int] = GroupCommit(disk.commit, most=2)
    with ThreadPoolExecutor(8) as threads:
        threads.submit(group.ask, 0)
        assert disk.is_busy.wait(PATIENCE_S)
        for number in range(1, 7):
            threads.submit(group.ask, number)
            while len(group) < number:
                pass
        disk.go_on.set()

    served = [number for commit in disk.commits for number in commit]
    assert all(one < other for one, other in pairwise(served))


def test_a_refused_request_fails_alone() -> None:
    disk = Disk(is_held=True)
    group: GroupCommit[int, int] = GroupCommit(disk.commit, most=8)
    with ThreadPoolExecutor(4) as threads:
        threads.submit(group.ask, 0)
        assert disk.is_busy.wait(PATIENCE_S)
        asked = [threads.submit(group.ask, number) for number in (6, 7, 8)]
        while len(group) < 3:
            pass
        disk.go_on.set()

        assert [asked[0].result(PATIENCE_S), asked[2].result(PATIENCE_S)] == [12, 16]
        with pytest.raises(ValueError, match="odd one out"):
            asked[1].result(PATIENCE_S)


def test_a_request_that_spoils_the_commit_is_found_by_itself() -> None:
    disk = Disk(is_held=True)
    group: GroupCommit[int, int] = GroupCommit(disk.commit, most=8)
    with ThreadPoolExecutor(4) as threads:
        threads.submit(group.ask, 0)
        assert disk.is_busy.wait(PATIENCE_S)
        asked = [threads.submit(group.ask, number) for number in (12, 13, 14)]
        while len(group) < 3:
            pass
        disk.go_on.set()

        assert [asked[0].result(PATIENCE_S), asked[2].result(PATIENCE_S)] == [24, 28]
        with pytest.raises(ZeroDivisionError):
            asked[1].result(PATIENCE_S)

    assert disk.commits[2:] == [(12,), (13,), (14,)]


def test_a_server_that_is_away_is_asked_once_for_all() -> None:
    calls: list[int] = []

    def away(asked: Sequence[int]) -> Sequence[int | Exception]:
        calls.append(len(asked))
        raise LedgerUnavailable("away")

    group = GroupCommit(away, most=8)
    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(group.ask, number) for number in range(8)]
        for each in asked:
            with pytest.raises(LedgerUnavailable):
                each.result(PATIENCE_S)

    assert sum(calls) == 8


def test_after_a_failure_the_next_request_is_served() -> None:
    disk = Disk()
    group: GroupCommit[int, int] = GroupCommit(disk.commit, most=8)
    with pytest.raises(ZeroDivisionError):
        group.ask(13)

    assert group.ask(5) == 10
