"""What the model thread does so that one bad case, or one bad run, stops nobody else."""

import threading

import pytest

from tests.unit.workers.claims import claimed
from workers.isolation import apart, given_up_after


@pytest.mark.parametrize(
    ("strikes", "together", "others"),
    [
        ([0, 0, 0], [0, 1, 2], []),
        ([0, 1, 0], [0, 2], [1]),
        ([1, 0, 1], [0], [1, 2]),
        ([0, 1, 2], [0], [1, 2]),
        ([1], [0], []),
        ([], [], []),
    ],
)
def test_a_suspect_runs_by_itself_when_it_is_first_in_line(strikes: list[int], together: list[int], others: list[int]) -> None:
    cases = [claimed(number, strikes=each) for number, each in enumerate(strikes)]

    assert [[case.case_id.int for case in group] for group in apart(cases)] == [together, others]


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
