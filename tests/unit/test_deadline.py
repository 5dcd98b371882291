from datetime import datetime, timedelta

import pytest

from pipeline.deadline import RECENT, Deadline, Pace, utc_now


def test_a_deadline_is_the_budget_after_admission(noon: datetime) -> None:
    assert Deadline.after(30, now=noon).at == noon + timedelta(seconds=30)


def test_what_remains_turns_negative_once_it_has_passed(noon: datetime) -> None:
    assert Deadline(noon).remaining_s(noon + timedelta(seconds=4)) == -4


@pytest.mark.parametrize(("elapsed_s", "wanted_s", "bound_s"), [(0, 5, 5), (27, 5, 3), (31, 5, 0)])
def test_a_wait_is_bounded_by_what_remains(noon: datetime, elapsed_s: float, wanted_s: float, bound_s: float) -> None:
    deadline = Deadline.after(30, now=noon)
    assert deadline.bound_s(wanted_s, now=noon + timedelta(seconds=elapsed_s)) == bound_s


def test_a_pools_pace_is_the_median_of_its_last_cases_and_a_guess_before_the_first() -> None:
    pace = Pace()
    assert pace.typical_s(0.3) == 0.3

    for service_s in (0.1, 9.0, 0.2):
        pace.note(service_s)
    assert pace.typical_s(0.3) == 0.2

    for _ in range(RECENT):
        pace.note(1.0)
    assert pace.typical_s(0.3) == 1.0


def test_the_clock_is_aware() -> None:
    assert utc_now().utcoffset() == timedelta(0)
