"""Virtual deadlines: who goes first, and how long anybody is overtaken."""

import pytest

from pipeline.batching.lanes import is_overdue, prepared_in_s, virtual_deadline
from pipeline.flow import Lane

NOON_S = 1_767_355_200.0


def place(lane: Lane, accepted_at: float, joined_at: float | None = None) -> float:
    return virtual_deadline(lane, accepted_at=accepted_at, joined_at=accepted_at if joined_at is None else joined_at)


@pytest.mark.parametrize(("lane", "budget_s"), [(Lane.URGENT, 12), (Lane.ROUTINE, 30), (Lane.COMPENSATION, 600)])
def test_a_lane_is_a_budget(lane: Lane, budget_s: float) -> None:
    assert place(lane, NOON_S) == NOON_S + budget_s


@pytest.mark.parametrize("lane", [Lane.URGENT, Lane.ROUTINE])
def test_who_was_prepared_for_long_loses_nothing_by_it(lane: Lane) -> None:
    assert place(lane, NOON_S, NOON_S + 5) == place(lane, NOON_S)


def test_within_a_lane_the_first_to_come_is_the_first_to_go() -> None:
    for lane in Lane:
        assert place(lane, NOON_S) < place(lane, NOON_S + 0.001)


@pytest.mark.parametrize(("later_s", "overtakes"), [(0.0, True), (17.9, True), (18.1, False), (60.0, False)])
def test_an_urgent_case_overtakes_routine_ones_of_the_last_eighteen_seconds(later_s: float, overtakes: bool) -> None:
    assert (place(Lane.URGENT, NOON_S + later_s) < place(Lane.ROUTINE, NOON_S)) is overtakes


def test_a_case_that_was_put_off_an_hour_ago_stands_behind_everybody_who_comes_now() -> None:
    put_off = place(Lane.COMPENSATION, NOON_S - 3600, NOON_S)

    assert put_off > place(Lane.URGENT, NOON_S)
    assert put_off > place(Lane.ROUTINE, NOON_S)
    assert put_off > place(Lane.ROUTINE, NOON_S + 569)


@pytest.mark.parametrize(
    ("lane", "waited_s", "overdue"), [("compensation", 599, False), ("compensation", 601, True), ("routine", 9999, False)]
)
def test_a_put_off_case_is_overdue_after_ten_minutes_in_line(lane: str, waited_s: float, overdue: bool) -> None:
    assert is_overdue(lane, joined_at=NOON_S - waited_s, now=NOON_S) is overdue


@pytest.mark.parametrize("lane", [Lane.URGENT, Lane.ROUTINE])
def test_a_place_tells_how_long_a_case_was_prepared(lane: Lane) -> None:
    assert prepared_in_s(lane, place=place(lane, NOON_S, NOON_S + 2.5), joined_at=NOON_S + 2.5) == pytest.approx(2.5)


def test_the_place_of_a_put_off_case_does_not_tell() -> None:
    assert prepared_in_s(Lane.COMPENSATION, place=place(Lane.COMPENSATION, NOON_S - 3600, NOON_S), joined_at=NOON_S) == 0.0
