"""When a batch fires: arithmetic by hand.

The device of the examples takes exactly one second whatever the size, so the rule's powers are easy: with nobody
else busy, waiting one run gains hazard x (2^4 - 1^4) and costs 4 x weight x (age + 1)^3 for each case.
"""

import pytest

from pipeline.batching.arrivals import Arrivals
from pipeline.batching.latency import LatencyModel
from pipeline.batching.rule import Ceilings, Fire, Hold, LetGo, Situation, decide
from tests.unit.batching.cases import NOW, Case, one_second, put_off

CEILINGS = Ceilings(images=16, window_s=2.0)
BUSY_HOUR = 1e9
"""Arrivals a second for which any wait pays."""


def situation(*, hazard: float = 0.0, held_since: float | None = None, next_free_in_s: float | None = None, company: int = 0) -> Situation:
    return Situation(NOW, held_since, hazard, next_free_in_s, company)


def fired(decision: object) -> Fire:
    assert isinstance(decision, Fire)
    return decision


def test_an_empty_line_asks_for_nothing() -> None:
    assert decide([], one_second(), CEILINGS, situation(hazard=BUSY_HOUR)) is None


def test_a_lone_case_fires_at_once_when_nobody_is_expected() -> None:
    decision = decide([Case(deadline=110.0)], LatencyModel(alpha_s=1.0, beta_s=0.5), CEILINGS, situation())

    assert fired(decision).members == (0,)
    assert (fired(decision).reason, fired(decision).image_count) == ("stop rule", 1)
    assert (fired(decision).predicted_s, fired(decision).slack_s) == (1.5, 8.5)


def test_a_full_batch_fires_however_many_are_expected() -> None:
    decision = decide([Case()] * 16, one_second(), CEILINGS, situation(hazard=BUSY_HOUR))

    assert isinstance(decision, Fire)
    assert (decision.reason, decision.members, decision.image_count) == ("full", tuple(range(16)), 16)


def test_a_long_line_gives_its_head_and_keeps_its_order() -> None:
    line = [Case(image_count=count) for count in (5, 6, 4, 3, 1)]

    decision = decide(line, one_second(), CEILINGS, situation(hazard=BUSY_HOUR))

    assert isinstance(decision, Fire)
    assert (decision.reason, decision.members, decision.image_count) == ("full", (0, 1, 2), 15)


@pytest.mark.parametrize(("deadline", "fires"), [(101.19, True), (101.21, False)])
def test_the_last_call_leaves_a_run_and_its_margin_before_the_deadline(deadline: float, fires: bool) -> None:
    # One second, and two spreads of a tenth: 1.2 s before the deadline.
    decision = decide([Case(), Case(deadline=deadline)], one_second(), CEILINGS, situation(hazard=BUSY_HOUR))

    assert (isinstance(decision, Fire) and decision.reason == "last call") is fires


@pytest.mark.parametrize(("held_since", "fires"), [(98.0, True), (98.001, False)])
def test_the_ceiling_ends_a_hold_after_the_window(held_since: float, fires: bool) -> None:
    decision = decide([Case(ready_at=held_since)], one_second(), CEILINGS, situation(hazard=BUSY_HOUR, held_since=held_since))

    assert (isinstance(decision, Fire) and decision.reason == "ceiling") is fires


def test_a_hold_ends_where_the_clock_was_set_back_in_its_midst() -> None:
    decision = decide([Case()], one_second(), CEILINGS, situation(hazard=BUSY_HOUR, held_since=NOW + 300))

    assert isinstance(decision, Fire)
    assert decision.reason == "ceiling"


def test_a_window_of_zero_never_holds() -> None:
    decision = decide([Case()], one_second(), Ceilings(16, 0.0), situation(hazard=BUSY_HOUR))

    assert isinstance(decision, Fire)
    assert decision.reason == "ceiling"


@pytest.mark.parametrize(
    ("line", "break_even"),
    [
        ([Case()], 4 / 15),
        ([Case()] * 3, 12 / 15),
        ([Case(ready_at=NOW - 1)], 4 * 2**3 / 15),
        ([Case(lane="urgent")], 12 / 15),
        ([Case(lane="urgent"), Case()], 16 / 15),
    ],
    ids=["one", "three", "one that waits a second", "urgent", "urgent and routine"],
)
def test_a_hold_must_be_worth_more_than_everybodys_wait(line: list[Case], break_even: float) -> None:
    below = decide(line, one_second(), CEILINGS, situation(hazard=break_even * 0.999))
    above = decide(line, one_second(), CEILINGS, situation(hazard=break_even * 1.001))

    assert isinstance(below, Fire)
    assert below.reason == "stop rule"
    assert isinstance(above, Hold)


def test_an_urgent_case_weighs_three_times() -> None:
    expected = situation(hazard=0.5)

    assert isinstance(decide([Case()], one_second(), CEILINGS, expected), Hold)
    assert isinstance(decide([Case(lane="urgent")], one_second(), CEILINGS, expected), Fire)


def test_a_device_that_is_free_soon_makes_waiting_worth_less() -> None:
    # Half a second until another is free: the gain is hazard x (1.5^4 - 1) = 4.0625 x hazard against a price of 4.
    soon = [decide([Case()], one_second(), CEILINGS, situation(hazard=hazard, next_free_in_s=0.5)) for hazard in (0.984, 0.985)]

    assert [type(decision) for decision in soon] == [Fire, Hold]


def test_a_device_that_is_free_now_takes_the_next_case_itself() -> None:
    assert isinstance(decide([Case()], one_second(), CEILINGS, situation(hazard=BUSY_HOUR, next_free_in_s=0.0)), Fire)


def test_a_hold_asks_again_within_an_eighth_of_a_run() -> None:
    assert decide([Case()], one_second(), CEILINGS, situation(hazard=BUSY_HOUR)) == Hold(0.125)


def test_a_hold_asks_again_when_the_window_ends() -> None:
    assert decide([Case()], one_second(), CEILINGS, situation(hazard=BUSY_HOUR, held_since=98.0625)) == Hold(0.0625)


def test_a_hold_asks_again_when_the_last_call_comes() -> None:
    # A second and two spreads of a tenth before the deadline.
    decision = decide([Case(deadline=NOW + 1.25)], one_second(), CEILINGS, situation(hazard=BUSY_HOUR))

    assert isinstance(decision, Hold)
    assert decision.seconds == pytest.approx(0.05)


def test_a_burst_is_held_for_and_a_lull_is_not() -> None:
    arrivals = Arrivals()
    for step in range(8):
        arrivals.saw(1, NOW - 2.1 + 0.3 * step)
    last_at = NOW

    in_the_burst = decide([Case()], one_second(), CEILINGS, situation(hazard=arrivals.hazard(last_at + 0.2)))
    in_the_lull = decide([Case()], one_second(), CEILINGS, situation(hazard=arrivals.hazard(last_at + 1.5)))

    assert isinstance(in_the_burst, Hold)
    assert isinstance(in_the_lull, Fire)


def test_company_fills_no_batch_before_it_is_there() -> None:
    decision = decide([Case()] * 15, one_second(), CEILINGS, situation(company=10))

    assert isinstance(decision, Hold)


def test_somebody_who_would_be_late_in_this_batch_makes_it_the_last_call() -> None:
    # A run of two takes 2 s: the head must be alone, and the three behind it are more.
    device = LatencyModel(alpha_s=0.0, beta_s=1.0, spread=0.0)
    line = [Case(deadline=NOW + 1.5), *[Case()] * 3]

    decision = fired(decide(line, device, CEILINGS, situation(hazard=BUSY_HOUR)))

    assert (decision.reason, decision.members, decision.late) == ("last call", (1, 2, 3), ())


def test_whoever_is_late_is_named_when_the_others_fire() -> None:
    decision = fired(decide([Case(deadline=NOW + 1), Case()], one_second(), CEILINGS, situation()))

    assert (decision.members, decision.late) == ((1,), (0,))


def test_where_all_are_late_they_are_let_go_and_nothing_runs() -> None:
    assert decide([Case(deadline=NOW + 1)] * 3, one_second(), CEILINGS, situation()) == LetGo((0, 1, 2))


def test_a_line_that_nobody_joins_any_more_is_drained_at_once() -> None:
    closing = Situation(NOW, None, BUSY_HOUR, None, is_last=True)

    assert fired(decide([Case()], one_second(), CEILINGS, closing)).reason == "drain"


@pytest.mark.parametrize(("idle_count", "break_even"), [(1, 4 / 15), (2, 4 / (1.5**4 - 1)), (4, 4 / (1.25**4 - 1))])
def test_idle_devices_share_the_wait_of_a_newcomer(idle_count: int, break_even: float) -> None:
    decisions = [
        decide([Case()], one_second(), CEILINGS, Situation(NOW, None, hazard, None, idle_count=idle_count, device_count=idle_count))
        for hazard in (break_even * 0.999, break_even * 1.001)
    ]

    assert [type(decision) for decision in decisions] == [Fire, Hold]


def test_a_device_that_takes_fewer_images_is_full_with_fewer() -> None:
    decision = fired(decide([Case()] * 9, one_second(), CEILINGS.within(8), situation(hazard=BUSY_HOUR)))

    assert (decision.reason, decision.image_count, decision.ceiling) == ("full", 8, 8)
    assert CEILINGS.within(99) == CEILINGS
    assert CEILINGS.within(0).images == 1


def test_put_off_cases_ride_along_and_are_counted() -> None:
    decision = fired(decide([Case(), put_off(), put_off()], one_second(), CEILINGS, situation()))

    assert (decision.members, decision.image_count, decision.rider_count) == ((0, 1, 2), 3, 2)


def alone_with(*, idle_count: int, device_count: int, hazard: float = 0.0) -> Situation:
    return Situation(NOW, None, hazard, None, idle_count=idle_count, device_count=device_count)


@pytest.mark.parametrize(
    ("moment", "fires"),
    [
        (alone_with(idle_count=2, device_count=4), True),
        (alone_with(idle_count=1, device_count=4), False),
        (alone_with(idle_count=1, device_count=1), True),
        # Four devices do 16 images a second each; half of that is 32.
        (alone_with(idle_count=2, device_count=4, hazard=31.9), True),
        (alone_with(idle_count=2, device_count=4, hazard=32.1), False),
    ],
    ids=["another is idle", "the last idle one", "the only one", "under half its load", "over half its load"],
)
def test_put_off_cases_alone_take_a_device_that_is_to_spare(moment: Situation, fires: bool) -> None:
    decision = decide([put_off(), put_off()], one_second(), CEILINGS, moment)

    assert isinstance(decision, Fire) is fires
    if isinstance(decision, Fire):
        assert (decision.reason, decision.members) == ("spare device", (0, 1))


def test_put_off_cases_that_waited_for_ten_minutes_wait_for_no_spare_device() -> None:
    assert isinstance(decide([put_off(waited_s=601)], one_second(), CEILINGS, alone_with(idle_count=1, device_count=4)), Fire)
