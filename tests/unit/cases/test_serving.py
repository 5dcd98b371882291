import math
from dataclasses import replace
from uuid import UUID

import pytest

from pipeline.cases.serving import ServingPlan, version_for

CASES = 20_000
PLAN = ServingPlan("a-model", 3, "canary", "1", canary="2", share=0.05)


def case_ids(count: int = CASES) -> list[UUID]:
    return [UUID(int=number << 64 | number) for number in range(count)]


def test_without_a_canary_one_version_answers_everybody() -> None:
    plan = ServingPlan("a-model", 1, "switch", "7")
    assert {version_for(plan, case_id) for case_id in case_ids(100)} == {"7"}


@pytest.mark.parametrize("share", [0.01, 0.05, 0.5])
def test_a_canary_answers_its_share_of_the_cases(share: float) -> None:
    plan = replace(PLAN, share=share)
    count = sum(version_for(plan, case_id) == "2" for case_id in case_ids())
    # Five standard deviations of a binomial count: once in two million runs by chance, and the ids are fixed.
    assert abs(count - share * CASES) < 5 * math.sqrt(CASES * share * (1 - share))


def test_a_case_has_the_same_version_whenever_it_is_asked_for() -> None:
    later = replace(PLAN, number=9, act="load", candidate="3")
    assert [version_for(PLAN, case_id) for case_id in case_ids(500)] == [version_for(later, case_id) for case_id in case_ids(500)]


def test_a_larger_share_keeps_who_was_in_the_smaller_one() -> None:
    small, large = (
        {case_id for case_id in case_ids(2_000) if version_for(replace(PLAN, share=share), case_id) == "2"} for share in (0.05, 0.2)
    )
    assert small < large


def test_the_next_canary_deals_anew() -> None:
    first = {case_id for case_id in case_ids() if version_for(PLAN, case_id) == "2"}
    second = {case_id for case_id in case_ids() if version_for(replace(PLAN, canary="3"), case_id) == "3"}
    expected = CASES * 0.05 * 0.05
    assert abs(len(first & second) - expected) < 5 * math.sqrt(expected)


def test_a_plan_names_every_version_that_must_be_loaded_once() -> None:
    plan = ServingPlan("a-model", 4, "load", "1", shadow="1", candidate="2")
    assert plan.references == ("a-model:1", "a-model:2")
    assert ServingPlan("a-model", 1, "load", None, candidate="2").references == ("a-model:2",)
