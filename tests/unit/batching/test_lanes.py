"""Virtual deadlines: who goes first, and how long anybody is overtaken."""

import pytest

from pipeline.batching.lanes import virtual_deadline
from pipeline.flow import Lane

NOON_S = 1_767_355_200.0


@pytest.mark.parametrize(("lane", "budget_s"), [(Lane.URGENT, 12), (Lane.ROUTINE, 30), (Lane.COMPENSATION, 600)])
def test_a_lane_is_a_budget(lane: Lane, budget_s: float) -> None:
    assert virtual_deadline(lane, accepted_at=NOON_S) == NOON_S + budget_s


def test_within_a_lane_the_first_to_come_is_the_first_to_go() -> None:
    for lane in Lane:
        assert virtual_deadline(lane, accepted_at=NOON_S) < virtual_deadline(lane, accepted_at=NOON_S + 0.001)


@pytest.mark.parametrize(("later_s", "overtakes"), [(0.0, True), (17.9, True), (18.1, False), (60.0, False)])
def test_an_urgent_case_overtakes_routine_ones_of_the_last_eighteen_seconds(later_s: float, overtakes: bool) -> None:
    routine = virtual_deadline(Lane.ROUTINE, accepted_at=NOON_S)

    assert (virtual_deadline(Lane.URGENT, accepted_at=NOON_S + later_s) < routine) is overtakes


def test_compensation_waits_for_nobody_who_comes_ten_minutes_later() -> None:
    compensation = virtual_deadline(Lane.COMPENSATION, accepted_at=NOON_S)

    assert compensation < virtual_deadline(Lane.ROUTINE, accepted_at=NOON_S + 571)
    assert compensation < virtual_deadline(Lane.URGENT, accepted_at=NOON_S + 589)
