"""What is remembered of a line between two questions, and what the rule is told of the other devices."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from pipeline.batching.feeder import Devices, Feeder
from pipeline.batching.rule import Ceilings, Fire, Hold
from tests.unit.batching.cases import NOW, Case, one_second

CEILINGS = Ceilings(images=16, window_s=2.0)


def nobody(_limit: int) -> int:
    return 0


def busy_feeder() -> Feeder:
    """One that has seen a case every fiftieth of a second."""
    feeder = Feeder(one_second())
    for step in range(9):
        feeder.arrivals.saw(1, NOW - 0.16 + 0.02 * step)
    return feeder


ALONE = Devices()


def ask(feeder: Feeder, line: list[Case], *, now: float = NOW, others: Devices = ALONE, company: Callable[[int], int] = nobody) -> object:
    return feeder.ask(line, CEILINGS, others, now=now, company=company)


def test_a_hold_is_remembered_and_ends_with_the_window() -> None:
    feeder = busy_feeder()
    line = [Case(ready_at=NOW)]

    assert isinstance(ask(feeder, line), Hold)
    assert feeder.held_since == NOW
    feeder.arrivals.saw(1, NOW + 1.98)
    assert isinstance(ask(feeder, line, now=NOW + 1.0), Hold)
    assert feeder.held_s(NOW + 1.0) == 1.0
    decision = ask(feeder, line, now=NOW + 2.0)
    assert isinstance(decision, Fire)
    assert decision.reason == "ceiling"


def test_an_empty_line_ends_a_hold() -> None:
    feeder = busy_feeder()
    ask(feeder, [Case()])

    assert ask(feeder, []) is None
    assert feeder.held_since is None
    assert feeder.held_s(NOW + 9) == 0.0


def test_company_is_asked_for_only_where_the_rule_would_fire_for_want_of_it() -> None:
    asked: list[int] = []

    def count(limit: int) -> int:
        asked.append(limit)
        return 3

    assert isinstance(ask(busy_feeder(), [Case()], company=count), Hold)
    assert isinstance(ask(Feeder(one_second()), [Case()] * 16, company=count), Fire)
    assert asked == []
    assert isinstance(ask(Feeder(one_second()), [Case()] * 2, company=count), Hold)
    assert asked == [14]


@pytest.mark.parametrize(
    ("others", "waits_s"),
    [
        (Devices(), 1.0),
        (Devices({"b": NOW + 0.3, "c": NOW + 9}), 0.3),
        (Devices({"b": NOW + 9}), 1.0),
        (Devices({}, idle_count=3), 0.25),
        (Devices({"b": NOW + 0.3}, idle_count=1), 0.15),
    ],
    ids=["alone", "another is free first", "another is free later", "three more are idle", "one busy, one idle"],
)
def test_a_newcomer_waits_for_the_next_device_and_shares_the_idle_ones(others: Devices, waits_s: float) -> None:
    decision = ask(Feeder(one_second()), [Case()], others=others)

    assert isinstance(decision, Fire)
    assert decision.newcomer_waits_s == pytest.approx(waits_s)


def test_a_line_that_nobody_joins_any_more_is_not_held() -> None:
    decision = ask(replace(busy_feeder(), is_last=True), [Case()])

    assert isinstance(decision, Fire)
    assert decision.reason == "drain"


def test_what_a_case_needs_afterwards_is_taken_off_its_time() -> None:
    line = [Case(deadline=NOW + 1.5)]

    assert isinstance(ask(Feeder(one_second(), after_s=0.3), line), Fire)
    assert not isinstance(ask(Feeder(one_second(), after_s=0.4), line), Fire)
