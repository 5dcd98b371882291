"""Who is in a batch: arithmetic by hand, and what must hold for any line and device.

On the device of the examples a batch of b takes 1 + b/10 seconds and is never late, so a case that must be done in 1.35 s can be
in a batch of three and in none of four.
"""

from itertools import combinations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pipeline.batching.boarding import FINISH_MARGIN, Boarding, board
from pipeline.batching.latency import LatencyModel
from tests.unit.batching.cases import NOW, Case, a_tenth_more_each, put_off


def within(seconds: float, *, lane: str = "routine", image_count: int = 1) -> Case:
    """A case that must be done so soon."""
    return Case(deadline=NOW + seconds, lane=lane, image_count=image_count)


def aboard(line: list[Case], limit: int = 16) -> Boarding:
    return board(line, a_tenth_more_each(), limit, now=NOW)


def test_all_go_where_all_can() -> None:
    boarding = aboard([within(5)] * 4)

    assert (boarding.members, boarding.images, boarding.is_full, boarding.passes_over) == ((0, 1, 2, 3), 4, False, False)
    assert boarding.leeway_s == pytest.approx(5)


def test_the_head_is_passed_over_where_it_would_cost_others_their_answer() -> None:
    # With the head three could go; without it all five others.
    boarding = aboard([within(1.35), *[within(3)] * 5])

    assert boarding.members == (1, 2, 3, 4, 5)
    assert (boarding.passes_over, boarding.late) == (True, ())


def test_on_a_tie_who_stands_before_the_others_goes() -> None:
    # Three with the head, or the three behind it.
    boarding = aboard([within(1.35), *[within(3)] * 3])

    assert boarding.members == (0, 1, 2)


def test_an_urgent_case_is_worth_three_others() -> None:
    # The head and one more, or the three behind it; an urgent head is worth more than two of them.
    others = [within(3)] * 3

    assert aboard([within(1.25), *others]).members == (1, 2, 3)
    assert aboard([within(1.25, lane="urgent"), *others]).members == (0, 1)


def test_who_is_late_even_alone_is_named_and_nobody_waits_for_it() -> None:
    boarding = aboard([within(1.09), within(3), within(0.5), within(3)])

    assert (boarding.members, boarding.late, boarding.passes_over) == ((1, 3), (0, 2), False)


def test_the_time_after_the_batch_is_taken_off() -> None:
    line = [within(1.5)]

    assert board(line, a_tenth_more_each(), 16, now=NOW, after_s=0.39).members == (0,)
    assert board(line, a_tenth_more_each(), 16, now=NOW, after_s=0.41).late == (0,)


def test_the_margin_is_seventeen_tenths_of_the_spread() -> None:
    device = LatencyModel(alpha_s=1.0, beta_s=0.0, spread=0.1)

    assert board([within(1.169)], device, 16, now=NOW).late == (0,)
    assert board([within(1.171)], device, 16, now=NOW).members == (0,)


def test_a_small_case_does_not_jump_over_a_large_one_that_does_not_fit() -> None:
    boarding = aboard([within(9, image_count=10), within(9, image_count=7), within(9)])

    assert (boarding.members, boarding.images, boarding.is_full) == ((0,), 10, True)


def test_a_case_larger_than_a_batch_goes_alone() -> None:
    boarding = aboard([within(9, image_count=20), within(9)])

    assert (boarding.members, boarding.images, boarding.is_full) == ((0,), 20, True)


def test_put_off_cases_take_spare_slots_while_they_lengthen_the_batch_by_little() -> None:
    # Ten take 2.0 s, and six parts in a hundred more are 2.12 s: one rider.
    boarding = aboard([*[within(9)] * 10, put_off(), put_off()])

    assert (boarding.members, boarding.riders, boarding.rider_images) == (tuple(range(10)), (10,), 1)
    assert boarding.put_off == (10, 11)


def test_nobody_rides_along_at_the_cost_of_an_answer_in_time() -> None:
    assert aboard([*[within(2.05)] * 10, put_off()]).riders == ()
    assert aboard([*[within(2.15)] * 10, put_off()]).riders == (10,)


def test_nobody_rides_along_where_somebody_is_passed_over() -> None:
    assert aboard([within(1.25), *[within(9)] * 10, put_off()]).riders == ()


def test_a_put_off_case_has_one_slot_after_ten_minutes_in_line() -> None:
    fresh, overdue = [*[within(9)] * 16, put_off(waited_s=599)], [*[within(9)] * 16, put_off(waited_s=601)]

    assert (aboard(fresh).members, aboard(fresh).riders) == (tuple(range(16)), ())
    assert (aboard(overdue).members, aboard(overdue).riders, aboard(overdue).is_full) == (tuple(range(15)), (16,), True)


def test_no_put_off_case_takes_the_slot_of_an_urgent_one() -> None:
    boarding = aboard([put_off(waited_s=601), *[within(9, lane="urgent")] * 16])

    assert (boarding.members, boarding.riders) == (tuple(range(1, 17)), ())


cases = st.builds(
    Case,
    deadline=st.floats(NOW - 1, NOW + 6),
    ready_at=st.floats(NOW - 30, NOW),
    image_count=st.integers(1, 4),
    lane=st.sampled_from(["urgent", "routine"]),
)
devices = st.builds(LatencyModel, alpha_s=st.floats(0.1, 3), beta_s=st.floats(0, 0.5), level=st.floats(0.5, 2), spread=st.floats(0, 0.3))


def needed_s(device: LatencyModel, images: int) -> float:
    return (device.alpha_s + device.beta_s * images) * device.level * (1 + FINISH_MARGIN * device.spread)


@given(line=st.lists(cases, max_size=40), device=devices, limit=st.integers(1, 16))
def test_nobody_is_aboard_whom_the_batch_would_make_late(line: list[Case], device: LatencyModel, limit: int) -> None:
    boarding = board(line, device, limit, now=NOW)

    for place in boarding.members:
        assert line[place].deadline - NOW >= needed_s(device, boarding.images) - 1e-9
    for place in boarding.late:
        assert line[place].deadline - NOW < needed_s(device, line[place].image_count)
    assert not set(boarding.members) & set(boarding.late)
    assert list(boarding.members) == sorted(boarding.members)
    assert boarding.images <= limit or len(boarding.members) == 1


@given(line=st.lists(cases, max_size=40), device=devices, limit=st.integers(1, 16))
def test_nobody_is_overtaken_within_a_lane_but_whom_the_batch_would_make_late(line: list[Case], device: LatencyModel, limit: int) -> None:
    line = [Case(case.deadline, case.ready_at) for case in line]
    boarding = board(line, device, limit, now=NOW)

    for place in range(max(boarding.members, default=0)):
        if place not in boarding.members:
            assert line[place].deadline - NOW < needed_s(device, boarding.images) + 1e-9


@given(line=st.lists(cases, max_size=40), device=devices, limit=st.integers(1, 16))
def test_a_batch_is_made_wherever_one_can_be_in_time(line: list[Case], device: LatencyModel, limit: int) -> None:
    boarding = board(line, device, limit, now=NOW)

    assert bool(boarding.members) == (len(boarding.late) < len(line))


@given(deadlines=st.lists(st.floats(NOW, NOW + 4), max_size=9), device=devices, limit=st.integers(1, 6))
def test_no_other_choice_of_single_images_would_answer_more(deadlines: list[float], device: LatencyModel, limit: int) -> None:
    assume(all(abs(each - NOW - needed_s(device, size)) > 1e-9 for each in deadlines for size in range(1, limit + 1)))
    line = [Case(deadline=each) for each in sorted(deadlines)]

    most = max(
        (
            size
            for size in range(1, limit + 1)
            for some in combinations(line, size)
            if all(one.deadline - NOW >= needed_s(device, size) for one in some)
        ),
        default=0,
    )

    assert len(board(line, device, limit, now=NOW).members) == most
