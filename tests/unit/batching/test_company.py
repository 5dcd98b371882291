"""Cases that are known to come: each is expected as soon as those who wait were prepared, in the mean.

The device takes exactly a second whatever the size: waiting one run gains 15 for each arrival a second that is expected, and costs
4 x weight x (age + 1)^3 for each case that waits.
"""

import pytest

from pipeline.batching.rule import Ceilings, Fire, Hold, Situation, decide
from tests.unit.batching.cases import NOW, Case, one_second

CEILINGS = Ceilings(images=16, window_s=10.0)


def company_of(count: int, *, hazard: float = 0.0, held_for_s: float | None = None) -> Situation:
    held_since = None if held_for_s is None else NOW - held_for_s
    return Situation(NOW, held_since, hazard=hazard, next_free_in_s=None, company=count)


def fires(line: list[Case], situation: Situation, ceilings: Ceilings = CEILINGS) -> bool:
    return isinstance(decide(line, one_second(), ceilings, situation), Fire)


def test_a_case_without_company_is_not_held() -> None:
    assert fires([Case()], company_of(0))


def test_a_case_is_held_for_company_that_is_known_to_come() -> None:
    assert not fires([Case()], company_of(1))


@pytest.mark.parametrize(
    ("line", "company", "longest_s"),
    [
        ([{}], 1, 15 / 4),
        ([{}], 3, 45 / 4),
        ([{}, {}], 1, 15 / 8),
        ([{"lane": "urgent"}], 1, 15 / 12),
        ([{"ready_at": NOW - 1}], 1, 15 / 32),
    ],
    ids=["one", "three come", "two wait", "urgent", "one that waits a second"],
)
def test_company_is_worth_its_share_of_the_time_that_preparing_takes(line: list[dict[str, object]], company: int, longest_s: float) -> None:
    # One case that comes within t is expected at 1/t a second: 15 company / t against the price.
    soon = [Case(prepared_in_s=longest_s * 0.999, **each) for each in line]  # type: ignore[arg-type]
    late = [Case(prepared_in_s=longest_s * 1.001, **each) for each in line]  # type: ignore[arg-type]

    assert not fires(soon, company_of(company))
    assert fires(late, company_of(company))


def test_the_mean_of_those_who_wait_tells_how_soon() -> None:
    assert not fires([Case(prepared_in_s=0.1), Case(prepared_in_s=3.6)], company_of(1))
    assert fires([Case(prepared_in_s=0.1), Case(prepared_in_s=3.7)], company_of(1))


def test_experience_counts_where_it_promises_more() -> None:
    assert fires([Case(prepared_in_s=60.0)], company_of(1))
    assert not fires([Case(prepared_in_s=60.0)], company_of(1, hazard=0.3))


def test_the_window_stays_above_all_company() -> None:
    decision = decide([Case()], one_second(), Ceilings(images=16, window_s=0.5), company_of(15, held_for_s=0.5))

    assert isinstance(decision, Fire)
    assert decision.reason == "ceiling"


def test_a_deadline_is_not_risked_for_company() -> None:
    # The run takes a second, and the margin before the deadline is two spreads of a tenth.
    decision = decide([Case(deadline=NOW + 1.2)], one_second(), CEILINGS, company_of(15))

    assert isinstance(decision, Fire)
    assert decision.reason == "last call"


@pytest.mark.parametrize(("held_for_s", "seconds"), [(None, 0.125), (9.95, 0.05)], ids=["after an eighth of a run", "when the window ends"])
def test_a_hold_for_company_looks_again(held_for_s: float | None, seconds: float) -> None:
    decision = decide([Case()], one_second(), CEILINGS, company_of(15, held_for_s=held_for_s))

    assert isinstance(decision, Hold)
    assert decision.seconds == pytest.approx(seconds)
