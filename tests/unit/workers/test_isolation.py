"""What the model thread does so that one bad case, or one bad run, stops nobody else."""

import threading

import pytest

from tests.unit.workers.claims import claimed
from workers.isolation import apart, given_up_after


@pytest.mark.parametrize(
    ("tries", "groups"),
    [
        ([1, 1, 1], [[0, 1, 2]]),
        ([1, 2, 1], [[0, 2], [1]]),
        ([3, 1, 2], [[1], [0], [2]]),
        ([2, 4], [[0], [1]]),
        ([], []),
    ],
)
def test_suspects_run_alone_and_after_the_others(tries: list[int], groups: list[list[int]]) -> None:
    cases = [claimed(number, tries=each) for number, each in enumerate(tries)]

    assert [[case.case_id.int for case in group] for group in apart(cases)] == groups


def test_a_run_that_ends_in_time_ends_nothing_else() -> None:
    died = threading.Event()

    with given_up_after(0.05, died.set):
        pass

    assert not died.wait(0.2)


def test_a_run_that_stands_still_ends_its_process() -> None:
    died = threading.Event()

    with given_up_after(0.05, died.set):
        assert died.wait(10)


def test_a_run_that_fails_in_time_ends_nothing_else() -> None:
    died = threading.Event()

    with pytest.raises(ZeroDivisionError), given_up_after(0.05, died.set):
        raise ZeroDivisionError

    assert not died.wait(0.2)
