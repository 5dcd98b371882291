"""Cases that are known to come: a group that was sent together is waited for as long as it takes to run as a whole.

The device of the examples takes a second, and a tenth more for each image: sixteen take 2.6 s.
"""

import pytest

from pipeline.batching.latency import LatencyModel
from pipeline.batching.rule import Ceilings, Fire, Hold, Situation, decide
from tests.unit.batching.cases import NOW, Case

LATENCY = LatencyModel(alpha_s=1.0, beta_s=0.1)
CEILINGS = Ceilings(images=16, window_s=10.0)


def company_of(count: int, *, held_for_s: float | None = None) -> Situation:
    held_since = None if held_for_s is None else NOW - held_for_s
    return Situation(NOW, held_since, hazard=0.0, next_free_in_s=None, company=count)


def fires(line: list[Case], situation: Situation, ceilings: Ceilings = CEILINGS) -> bool:
    return isinstance(decide(line, LATENCY, ceilings, situation), Fire)


def test_a_case_without_company_is_not_held() -> None:
    assert fires([Case()], company_of(0))


def test_a_case_is_held_for_company_that_is_known_to_come() -> None:
    assert not fires([Case()], company_of(1))


@pytest.mark.parametrize(("held_for_s", "is_over"), [(1.29, False), (1.31, True)])
def test_company_is_awaited_for_one_run_of_the_whole_group(held_for_s: float, is_over: bool) -> None:
    # One waits and two come: a run of three takes 1.3 s.
    assert fires([Case()], company_of(2, held_for_s=held_for_s)) is is_over


@pytest.mark.parametrize(("held_for_s", "is_over"), [(2.59, False), (2.61, True)])
def test_more_company_than_a_batch_takes_is_awaited_no_longer_than_a_full_batch(held_for_s: float, is_over: bool) -> None:
    assert fires([Case()], company_of(500, held_for_s=held_for_s)) is is_over


@pytest.mark.parametrize(("held_for_s", "is_over"), [(0.39, False), (0.41, True)])
def test_an_urgent_case_waits_a_third_as_long(held_for_s: float, is_over: bool) -> None:
    # One waits and one comes: a run of two takes 1.2 s.
    assert fires([Case(lane="urgent")], company_of(1, held_for_s=held_for_s)) is is_over


def test_the_window_stays_above_all_patience() -> None:
    decision = decide([Case()], LATENCY, Ceilings(images=16, window_s=0.5), company_of(15, held_for_s=0.5))

    assert isinstance(decision, Fire)
    assert decision.reason == "ceiling"


def test_a_deadline_is_not_risked_for_company() -> None:
    # The run takes 1.1 s, and the margin before the deadline is two spreads of a tenth.
    decision = decide([Case(deadline=NOW + 1.3)], LATENCY, CEILINGS, company_of(15))

    assert isinstance(decision, Fire)
    assert decision.reason == "last call"


@pytest.mark.parametrize(
    ("situation", "seconds"),
    [(company_of(15), 0.55), (company_of(2, held_for_s=1.2), 0.1)],
    ids=["after half a run", "when the patience ends"],
)
def test_a_hold_for_company_looks_again(situation: Situation, seconds: float) -> None:
    decision = decide([Case()], LATENCY, CEILINGS, situation)

    assert isinstance(decision, Hold)
    assert decision.seconds == pytest.approx(seconds)


@pytest.mark.parametrize(("prepared_in_s", "is_awaited"), [(0.0, True), (1.29, True), (1.31, False), (60.0, False)])
def test_company_that_takes_longer_to_prepare_than_a_run_is_not_awaited(prepared_in_s: float, is_awaited: bool) -> None:
    # One waits and two come: a run of three takes 1.3 s.
    assert fires([Case(prepared_in_s=prepared_in_s)], company_of(2)) is not is_awaited
