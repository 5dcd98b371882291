"""What is done round every stage: parse, claim, keep the lease, time it, hand on, and end what is expected."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from celery import Celery
from pydantic import ValidationError

from pipeline.cases.states import POOL_STATES, CaseState
from pipeline.deadline import utc_now
from pipeline.errors import IdentityMismatch, RejectedInput, Superseded, TensorMissing, Unavailable
from pipeline.flow import Lane, Pool, stages_of
from pipeline.observability import metrics
from pipeline.observability.log import about_case, logger
from pipeline.persistence.ledger.claims import Claimed, Return, claim_cases, give_back
from schemas.message import StageMessage
from workers.endings import Ending, fail
from workers.leases import LeaseKeeper
from workers.wiring import Services

RETRY_DELAY_S = 0.5
"""First wait after a failure that is not the input's fault; doubles with every try."""
RETRY_DELAY_MAX_S = 5.0

StageBody = Callable[[Claimed, "StageClock"], None]
"""Does the pool's stages for one claimed case and writes their effect, guarded by the claim."""


class StageClock:
    """Notes when each stage of a claim was entered and left: the case's timeline and the stage metrics."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._started: dict[str, tuple[datetime, float]] = {}
        self.timeline: dict[str, dict[str, str]] = {}

    def enter(self, stage: str) -> None:
        """Note that a stage begins; the one before it ends."""
        for open_stage in list(self._started):
            self.leave(open_stage)
        self._started[stage] = (utc_now(), time.monotonic())

    def leave(self, stage: str, *, outcome: str = "done") -> None:
        """Note that a stage ended."""
        entered_at, begun = self._started.pop(stage)
        self.timeline[stage] = {"entered_at": entered_at.isoformat(), "left_at": utc_now().isoformat()}
        metrics.STAGE_SECONDS.labels(stage, self._lane.value, outcome).observe(time.monotonic() - begun)

    def finish(self, outcome: str = "done") -> dict[str, dict[str, str]]:
        """End the stage that is open and return the timeline."""
        for open_stage in list(self._started):
            self.leave(open_stage, outcome=outcome)
        return self.timeline


@dataclass(frozen=True, slots=True)
class PoolRuntime:
    """What the tasks of one pool's process share."""

    pool: Pool
    app: Celery
    services: Services
    leases: LeaseKeeper


def parse_message(arguments: dict[str, Any]) -> StageMessage | None:
    """Read a doorbell; None (and a log line without its content) where it is not one of ours."""
    try:
        return StageMessage.model_validate(arguments)
    except ValidationError as error:
        logger().error("message_refused", error_count=error.error_count())
        return None


def run_stage(runtime: PoolRuntime, arguments: dict[str, Any], body: StageBody) -> None:
    """Answer one doorbell of a pool whose unit of work is one case."""
    message = parse_message(arguments)
    if message is None:
        return
    stage = stages_of(runtime.pool)[0].name
    with about_case(message.case_id, stage=stage):
        try:
            claimed = claim_cases(
                runtime.services.ledger,
                [message.case_id],
                pool=runtime.pool,
                worker=runtime.services.worker,
                seen_no=message.publish_no,
            )
        except Unavailable as error:
            # Unclaimed, so nothing is lost: the row is still queued and will be rung again.
            logger().warning("claim_failed", code=error.code)
            return
        if not claimed:
            metrics.DUPLICATES.labels(stage).inc()
            return
        _run_claimed(runtime, claimed[0], body)


def _run_claimed(runtime: PoolRuntime, case: Claimed, body: StageBody) -> None:
    clock = StageClock(case.lane)
    with runtime.leases.holding([(case.case_id, case.attempt)]):
        outcome = "done"
        try:
            body(case, clock)
        except RejectedInput as error:
            outcome = "rejected"
            if isinstance(error, IdentityMismatch):
                metrics.IDENTITY_MISMATCHES.labels(stages_of(runtime.pool)[0].name).inc()
            end_with_failure(runtime, case, error, clock)
        except Superseded as error:
            outcome = "superseded"
            metrics.STALE_COMPLETIONS.labels(stages_of(runtime.pool)[0].name).inc()
            logger().info("work_superseded", code=error.code)
        except Unavailable as error:
            outcome = "unavailable"
            put_back(runtime, case, error)
        except (Exception, SystemExit) as error:  # the edge: Celery would exit on some of these
            outcome = "crashed"
            logger().error("stage_crashed", exc_info=error)
            put_back(runtime, case, Unavailable("the stage crashed"))
        metrics.ATTEMPTS.labels(stages_of(runtime.pool)[0].name, outcome).inc()


def end_with_failure(runtime: PoolRuntime, case: Claimed, error: RejectedInput, clock: StageClock) -> None:
    """Fail a claimed case with the error's code; drop it where the claim has passed on."""
    logger().info("case_rejected", code=error.code, facts=error.facts)
    ending = Ending(case, POOL_STATES[runtime.pool].claimed, clock.finish("rejected"))
    try:
        fail(runtime.app, runtime.services, ending, error)
    except (Superseded, Unavailable) as failed:
        # Where the ledger is away the lease lapses and the case is done again, with the same end.
        logger().warning("failure_not_written", code=failed.code)


def put_back(runtime: PoolRuntime, case: Claimed, error: Unavailable) -> None:
    """Queue a claimed case again, a little later each time; the sweeper rings when it is due."""
    states = POOL_STATES[runtime.pool]
    entered = states.queued
    if isinstance(error, TensorMissing) and runtime.pool is not Pool.INTAKE:
        # Its tensors went with the host that held them: it is prepared once more.
        entered = CaseState.ACCEPTED
    delay_s = min(RETRY_DELAY_MAX_S, RETRY_DELAY_S * 2 ** (case.tries - 1))
    logger().warning("case_put_back", code=error.code, facts=error.facts, tries=case.tries, delay_s=delay_s)
    why = Return(left=states.claimed, entered=entered, code=error.code, delay_s=delay_s)
    try:
        give_back(runtime.services.ledger, [(case.case_id, case.attempt)], why, worker=runtime.services.worker)
    except Unavailable as failed:
        logger().warning("not_put_back", code=failed.code)
