"""When a batch fires: arithmetic by hand, and what must hold for any line, device and moment.

The device of the examples takes exactly one second whatever the size, so the rule's powers are easy: with nobody
else busy, waiting one run gains hazard x (2^4 - 1^4) and costs 4 x weight x (age + 1)^3 for each case.
"""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.batching.arrivals import Arrivals
from pipeline.batching.latency import LatencyModel
from pipeline.batching.rule import Ceilings, Fire, Hold, Situation, decide

NOW = 100.0
CEILINGS = Ceilings(images=16, window_s=2.0)
BUSY_HOUR = 1e9
"""Arrivals a second for which any wait pays."""


@dataclass(frozen=True, slots=True)
class Case:
    """A waiting case, as the rule sees one."""

    deadline: float = 1_000.0
    ready_at: float = NOW
    image_count: int = 1
    lane: str = "routine"


def one_second() -> LatencyModel:
    return LatencyModel(alpha_s=1.0, beta_s=0.0, spread=0.1)


def situation(*, hazard: float = 0.0, held_since: float | None = None, next_free_in_s: float | None = None, company: int = 0) -> Situation:
    return Situation(NOW, held_since, hazard, next_free_in_s, company)


def test_an_empty_line_asks_for_nothing() -> None:
    assert decide([], one_second(), CEILINGS, situation(hazard=BUSY_HOUR)) is None


def test_a_lone_case_fires_at_once_when_nobody_is_expected() -> None:
    decision = decide([Case(deadline=110.0)], LatencyModel(alpha_s=1.0, beta_s=0.5), CEILINGS, situation())

    assert decision == Fire(case_count=1, image_count=1, reason="stop rule", predicted_s=1.5, slack_s=8.5)


def test_a_full_batch_fires_however_many_are_expected() -> None:
    decision = decide([Case()] * 16, one_second(), CEILINGS, situation(hazard=BUSY_HOUR))

    assert isinstance(decision, Fire)
    assert (decision.reason, decision.case_count, decision.image_count) == ("full", 16, 16)


def test_a_long_line_gives_its_head_and_keeps_its_order() -> None:
    line = [Case(image_count=count) for count in (5, 6, 4, 3, 1)]

    decision = decide(line, one_second(), CEILINGS, situation(hazard=BUSY_HOUR))

    assert isinstance(decision, Fire)
    assert (decision.reason, decision.case_count, decision.image_count) == ("full", 3, 15)


def test_a_small_case_does_not_jump_over_a_large_one_that_does_not_fit() -> None:
    decision = decide([Case(image_count=10), Case(image_count=7), Case(image_count=1)], one_second(), CEILINGS, situation())

    assert isinstance(decision, Fire)
    assert (decision.case_count, decision.image_count) == (1, 10)


def test_a_case_larger_than_a_batch_goes_alone() -> None:
    decision = decide([Case(image_count=20), Case()], one_second(), CEILINGS, situation(hazard=BUSY_HOUR))

    assert isinstance(decision, Fire)
    assert (decision.reason, decision.case_count, decision.image_count) == ("full", 1, 20)


@pytest.mark.parametrize(("deadline", "fires"), [(101.15, True), (101.17, False)])
def test_the_last_call_leaves_a_run_and_its_margin_before_the_deadline(deadline: float, fires: bool) -> None:
    # One second, and 1.6 spreads of a tenth: 1.16 s before the deadline.
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
        ([Case(lane="urgent"), Case(lane="compensation")], 16 / 15),
    ],
    ids=["one", "three", "one that waits a second", "urgent", "urgent and compensation"],
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


def test_a_burst_is_held_for_and_a_lull_is_not() -> None:
    arrivals = Arrivals()
    for step in range(8):
        arrivals.saw(1, NOW - 2.1 + 0.3 * step)
    last_at = NOW

    in_the_burst = decide([Case()], one_second(), CEILINGS, situation(hazard=arrivals.hazard(last_at + 0.2)))
    in_the_lull = decide([Case()], one_second(), CEILINGS, situation(hazard=arrivals.hazard(last_at + 1.5)))

    assert isinstance(in_the_burst, Hold)
    assert isinstance(in_the_lull, Fire)


def test_known_company_is_waited_for_where_nobody_else_is_expected() -> None:
    assert decide([Case()], one_second(), CEILINGS, situation(company=3)) == Hold(0.5)


@pytest.mark.parametrize(("lane", "patience_s"), [("routine", 1.4), ("urgent", 1.4 / 3), ("compensation", 1.4)])
def test_company_is_waited_for_as_long_as_the_group_runs_and_a_third_of_it_with_an_urgent_case(lane: str, patience_s: float) -> None:
    # One case of two images that waits, and two that come: a group of four, which runs 1 + 4 x 0.1 s.
    device = LatencyModel(alpha_s=1.0, beta_s=0.1)
    line = [Case(image_count=2, lane=lane)]

    patient = decide(line, device, CEILINGS, situation(company=2, held_since=NOW - patience_s + 0.02))
    tired = decide(line, device, CEILINGS, situation(company=2, held_since=NOW - patience_s - 0.02))

    assert isinstance(patient, Hold)
    assert patient.seconds == pytest.approx(0.02)
    assert isinstance(tired, Fire)
    assert tired.reason == "stop rule"


def test_a_crowd_that_comes_is_waited_for_no_longer_than_one_full_batch_runs() -> None:
    device = LatencyModel(alpha_s=0.1, beta_s=0.1)
    bounds = Ceilings(images=4, window_s=10.0)

    assert isinstance(decide([Case()], device, bounds, situation(company=100, held_since=NOW - 0.49)), Hold)
    assert isinstance(decide([Case()], device, bounds, situation(company=100, held_since=NOW - 0.51)), Fire)


def test_company_fills_no_batch_before_it_is_there() -> None:
    decision = decide([Case()] * 15, one_second(), CEILINGS, situation(company=10))

    assert isinstance(decision, Hold)


cases = st.builds(
    Case,
    deadline=st.floats(NOW - 10, NOW + 60),
    ready_at=st.floats(NOW - 30, NOW + 1),
    image_count=st.integers(1, 24),
    lane=st.sampled_from(["urgent", "routine", "compensation"]),
)
lines = st.lists(cases, max_size=40)
devices = st.builds(LatencyModel, alpha_s=st.floats(0, 8), beta_s=st.floats(0, 1), level=st.floats(0.2, 5), spread=st.floats(0, 1))
ceilings = st.builds(Ceilings, images=st.integers(1, 32), window_s=st.floats(0, 5))
moments = st.builds(
    Situation,
    now=st.just(NOW),
    held_since=st.none() | st.floats(NOW - 5, NOW),
    hazard=st.floats(0, 1e6),
    next_free_in_s=st.none() | st.floats(-1, 20),
    company=st.integers(0, 40),
)


@given(line=lines, device=devices, bounds=ceilings, moment=moments)
def test_no_batch_exceeds_the_ceiling_but_a_single_case_that_is_larger(
    line: list[Case], device: LatencyModel, bounds: Ceilings, moment: Situation
) -> None:
    decision = decide(line, device, bounds, moment)

    if isinstance(decision, Fire):
        assert 1 <= decision.case_count <= len(line)
        assert decision.image_count == sum(case.image_count for case in line[: decision.case_count])
        assert decision.image_count <= bounds.images or decision.case_count == 1


@given(line=lines, device=devices, bounds=ceilings, moment=moments)
def test_no_hold_lasts_past_the_last_call_or_the_window(
    line: list[Case], device: LatencyModel, bounds: Ceilings, moment: Situation
) -> None:
    decision = decide(line, device, bounds, moment)

    if isinstance(decision, Hold):
        images = sum(case.image_count for case in line)
        duration_s = (device.alpha_s + device.beta_s * images) * device.level
        last_call = min(case.deadline for case in line) - duration_s * (1 + 1.6 * device.spread)
        window_end = (moment.held_since if moment.held_since is not None else NOW) + bounds.window_s
        assert min(last_call, window_end) > NOW
        # A millisecond is the shortest sleep.
        assert NOW + decision.seconds <= max(min(last_call, window_end), NOW + 0.001) + 1e-9
        assert decision.seconds >= 0.001


@given(line=lines.filter(bool), device=devices, bounds=ceilings, moment=moments)
def test_a_line_that_fills_a_batch_never_waits(line: list[Case], device: LatencyModel, bounds: Ceilings, moment: Situation) -> None:
    decision = decide(line, device, bounds, moment)

    assert decision is not None
    if sum(case.image_count for case in line) >= bounds.images:
        assert isinstance(decision, Fire)
        assert decision.reason == "full"


@given(line=lines.filter(bool), device=devices, bounds=ceilings, moment=moments)
def test_who_is_urgent_never_makes_a_line_wait_longer(line: list[Case], device: LatencyModel, bounds: Ceilings, moment: Situation) -> None:
    hurried = [Case(case.deadline, case.ready_at, case.image_count, "urgent") for case in line]

    if isinstance(decide(line, device, bounds, moment), Fire):
        assert isinstance(decide(hurried, device, bounds, moment), Fire)
