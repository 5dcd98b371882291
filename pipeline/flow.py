"""THE TABLE OF CONTENTS: seven stages in order, each with pool and time budget.

Queue names, metric labels and the budget test derive from this table. The story itself is in
`pipeline/stages/`, one module a stage, in this order.
"""

from dataclasses import dataclass
from enum import StrEnum

DEADLINE_S = 30.0
"""End to end, P99. Every other time in the product is a share of it."""


class Pool(StrEnum):
    """A group of processes that takes one kind of work."""

    GATEWAY = "gateway"
    INTAKE = "intake"
    INFERENCE = "inference"
    REPORTING = "reporting"
    DELIVERY = "delivery"


class Lane(StrEnum):
    """Who goes first. The lane sets the virtual deadline, so nobody starves."""

    URGENT = "urgent"
    ROUTINE = "routine"
    COMPENSATION = "compensation"


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of the flow."""

    name: str
    pool: Pool
    budget_s: float
    """What a healthy case spends here, waiting included."""
    limit_s: float
    """Where the stage gives up: the deadline's guard or a retry takes over."""
    least_s: float = 0.0
    """No case is through in less, however idle the house: whoever has less time left is not begun with."""


RECEIVE = Stage("receive", Pool.GATEWAY, budget_s=0.2, limit_s=1.0)
FETCH = Stage("fetch", Pool.INTAKE, budget_s=5.0, limit_s=8.0, least_s=0.01)
PREPROCESS = Stage("preprocess", Pool.INTAKE, budget_s=2.0, limit_s=5.0, least_s=0.02)
INFER = Stage("infer", Pool.INFERENCE, budget_s=9.5, limit_s=15.0, least_s=0.05)
POSTPROCESS = Stage("postprocess", Pool.REPORTING, budget_s=1.0, limit_s=2.5, least_s=0.02)
REPORT = Stage("report", Pool.REPORTING, budget_s=1.0, limit_s=2.5, least_s=0.02)
DELIVER = Stage("deliver", Pool.DELIVERY, budget_s=1.0, limit_s=3.0)

STAGES = (RECEIVE, FETCH, PREPROCESS, INFER, POSTPROCESS, REPORT, DELIVER)

REDO_RESERVE_S = 9.0
"""Kept free for one lost lease and the work done again."""

CELERY_POOLS = (Pool.INTAKE, Pool.INFERENCE, Pool.REPORTING, Pool.DELIVERY)


def stages_of(pool: Pool) -> tuple[Stage, ...]:
    """The stages that one claim of this pool runs, in order."""
    return tuple(stage for stage in STAGES if stage.pool is pool)


def least_s_of(pool: Pool) -> float:
    """Seconds that the stages of this pool take at the least."""
    return sum(stage.least_s for stage in stages_of(pool))


def least_s_after(pool: Pool) -> float:
    """Seconds that a case needs at the least once it has left this pool, until it has its result."""
    last = STAGES.index(stages_of(pool)[-1])
    return sum(stage.least_s for stage in STAGES[last + 1 :])


def doorbell_of(pool: Pool) -> str:
    """The Celery task that rings this pool. A ring is for all cases that became ready together; a delivery stands for itself."""
    return case_task_of(pool) if pool is Pool.DELIVERY else f"{pool.value}.ring"


def case_task_of(pool: Pool) -> str:
    """The task by which an operator sees one case in this pool: `<pool>.<its first stage>`."""
    return f"{pool.value}.{stages_of(pool)[0].name}"
