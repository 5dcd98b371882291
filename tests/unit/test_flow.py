"""The table of contents holds together: seven stages whose budgets fit the deadline."""

import pytest

from pipeline import flow
from pipeline.flow import (
    CELERY_POOLS,
    DEADLINE_S,
    REDO_RESERVE_S,
    STAGES,
    Pool,
    case_task_of,
    doorbell_of,
    least_s_after,
    least_s_of,
    stages_of,
)


def test_the_story_has_seven_stages_in_order() -> None:
    assert [stage.name for stage in STAGES] == ["receive", "fetch", "preprocess", "infer", "postprocess", "report", "deliver"]


def test_the_budgets_and_one_redo_fit_the_deadline() -> None:
    assert sum(stage.budget_s for stage in STAGES) + REDO_RESERVE_S <= DEADLINE_S == 30


def test_no_stage_may_take_longer_than_the_deadline() -> None:
    assert all(stage.budget_s <= stage.limit_s < DEADLINE_S for stage in STAGES)


def test_every_stage_belongs_to_one_pool() -> None:
    assert [stage for pool in Pool for stage in stages_of(pool)] == list(STAGES)


@pytest.mark.parametrize(
    ("pool", "doorbell", "case_task"),
    [
        (Pool.INTAKE, "intake.ring", "intake.fetch"),
        (Pool.INFERENCE, "inference.ring", "inference.infer"),
        (Pool.REPORTING, "reporting.ring", "reporting.postprocess"),
        (Pool.DELIVERY, "delivery.deliver", "delivery.deliver"),
    ],
)
def test_a_pool_has_a_bell_and_a_case_in_it_the_name_of_the_pools_first_stage(pool: Pool, doorbell: str, case_task: str) -> None:
    assert (doorbell_of(pool), case_task_of(pool)) == (doorbell, case_task)


def test_what_a_case_needs_at_the_least_is_little_and_less_the_nearer_it_is_to_its_answer() -> None:
    assert all(0 <= stage.least_s < stage.budget_s / 10 for stage in STAGES)
    left_s = [least_s_of(pool) + least_s_after(pool) for pool in (Pool.INTAKE, Pool.INFERENCE, Pool.REPORTING)]
    assert left_s == sorted(left_s, reverse=True)
    assert least_s_after(Pool.REPORTING) == 0


def test_the_gateway_is_no_celery_pool() -> None:
    assert flow.RECEIVE.pool not in CELERY_POOLS
