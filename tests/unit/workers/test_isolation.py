"""What the model thread does so that one bad case, or one bad run, stops nobody else."""

import threading
from uuid import UUID

import pytest

from pipeline.persistence.waiting_line import Waiting
from tests.unit.workers.claims import claimed
from workers.isolation import MOST_SUSPECTS_KNOWN, Suspects, apart, given_up_after, lost_with


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


def place(number: int) -> Waiting:
    return Waiting(UUID(int=number), 0.0, 0.0, 0.0, 1, "routine", 1)


def aboard(suspects: Suspects, *numbers: int) -> list[int]:
    return [each.case_id.int for each in suspects.aboard([place(number) for number in numbers])]


def test_a_suspect_that_was_met_is_not_claimed_again_until_it_is_first_and_then_alone() -> None:
    suspects = Suspects()
    assert aboard(suspects, 1, 2, 3) == [1, 2, 3]
    suspects.meet([claimed(1), claimed(2, strikes=1), claimed(3)])
    assert aboard(suspects, 1, 2, 3) == [1, 3]
    assert aboard(suspects, 2, 1, 3) == [2]


def test_who_has_no_strike_any_more_is_no_suspect() -> None:
    suspects = Suspects()
    suspects.meet([claimed(2, strikes=1)])
    suspects.meet([claimed(2)])
    assert aboard(suspects, 1, 2) == [1, 2]


def test_the_oldest_suspects_are_forgotten_before_there_are_too_many() -> None:
    suspects = Suspects()
    suspects.meet([claimed(number, strikes=1) for number in range(MOST_SUSPECTS_KNOWN + 2)])
    assert aboard(suspects, 5000, 0, 1, 2) == [5000, 0, 1]


def test_company_of_a_lost_device_is_charged_a_strike_and_no_try_and_who_was_alone_both() -> None:
    together, alone = lost_with([claimed(1), claimed(2)]), lost_with([claimed(1)])
    assert (together.is_strike, together.is_free) == (True, True)
    assert (alone.is_strike, alone.is_free) == (True, False)


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
