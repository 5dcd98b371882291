"""What is done round every stage: parse, claim, keep the lease, time it, hand on, and end what is expected."""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from celery import Celery
from pydantic import ValidationError

from pipeline.cases.retries import redo_delay_s
from pipeline.cases.states import POOL_STATES, CaseState
from pipeline.deadline import Pace, utc_now
from pipeline.errors import (
    ExpiredAtStage,
    IdentityMismatch,
    OutOfTime,
    RejectedInput,
    SourceBusy,
    StageCrashed,
    Superseded,
    TensorMissing,
    Unavailable,
)
from pipeline.flow import Lane, Pool, least_s_after, least_s_of, stages_of
from pipeline.observability import metrics
from pipeline.observability.log import about_case, logger
from pipeline.persistence.ledger.claims import Claimed, Return, claim_cases, give_back
from schemas.message import StageMessage, is_newer, read_message
from workers.endings import Ending, Written, fail, try_later
from workers.flower_events import TaskEvents
from workers.group import Group, Watch
from workers.leases import LeaseKeeper
from workers.wiring import Services

BUSY_DELAY_S = 2.0
"""Until a case asks again whose source was busy with others."""
LATER_S = 5.0
"""The shortest wait of a case whose time is over: the guard comes first."""

Done = TypeVar("Done")


class PoolWork(Protocol[Done]):
    """What one pool does: its stages for one case, and how the ledger learns of several that are finished."""

    def do(self, case: Claimed, clock: "StageClock") -> Done:
        """Do the pool's stages for one claimed case; nothing that others see is written yet."""

    def write(self, done: Sequence[Done]) -> Written:
        """Write finished cases in one commit, ring whoever is next; say whose claim still stood, and whose work is refused."""


@dataclass(frozen=True, slots=True)
class _Finished(Generic[Done]):
    case: Claimed
    clock: "StageClock"
    done: Done


class StageClock:
    """Notes when each stage of a claim was entered and left: the case's timeline and the stage metrics."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._made_at = time.monotonic()
        self._started: dict[str, tuple[datetime, float]] = {}
        self.timeline: dict[str, dict[str, str]] = {}

    @property
    def age_s(self) -> float:
        """Seconds since the claim's work began."""
        return time.monotonic() - self._made_at

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
    watch: Watch
    events: TaskEvents
    pace: Pace = field(default_factory=Pace)


def parse_message(arguments: dict[str, Any]) -> StageMessage | None:
    """Read a doorbell; None (and a log line without its content) where it is not one of ours.

    A case whose doorbell is refused is not lost: it stays queued, and the sweeper rings again.
    """
    if is_newer(arguments):
        metrics.NEWER_MESSAGES.inc()
    try:
        return read_message(arguments)
    except ValidationError as error:
        metrics.MESSAGES_REFUSED.inc()
        logger().error("message_refused", error_count=error.error_count())
        return None


def run_stage(runtime: PoolRuntime, arguments: dict[str, Any], work: PoolWork[Done]) -> None:
    """Answer one doorbell of a pool whose unit of work is one case."""
    message = parse_message(arguments)
    if message is None:
        return
    try:
        claimed = claim_cases(
            runtime.services.ledger, message.case_ids, pool=runtime.pool, worker=runtime.services.worker, seen_no=message.publish_no
        )
    except Unavailable as error:
        # Unclaimed, so nothing is lost: the rows are still queued and will be rung again.
        logger().warning("claim_failed", code=error.code, case_count=len(message.case_ids))
        return
    if len(claimed) < len(message.case_ids):
        metrics.DUPLICATES.labels(message.stage).inc(len(message.case_ids) - len(claimed))
    if claimed:
        _StageRun(runtime, work).run(claimed)


class _StageRun(Generic[Done]):
    """The claimed cases of one doorbell, and how each of them ends."""

    def __init__(self, runtime: PoolRuntime, work: PoolWork[Done]) -> None:
        self._runtime, self._work = runtime, work
        self._stage = stages_of(runtime.pool)[0].name

    def run(self, cases: Sequence[Claimed]) -> None:
        group: Group[_Finished[Done]] = Group(cases, self._do, self._write)
        with self._runtime.leases.holding([(case.case_id, case.attempt) for case in cases]):
            if len(cases) == 1:
                group.run()
                return
            with self._runtime.watch.over(group):
                group.run()

    def _do(self, case: Claimed) -> _Finished[Done] | None:
        clock = StageClock(case.lane)
        with about_case(case.case_id, stage=self._stage):
            self._runtime.events.began(case, self._runtime.pool)
            try:
                require_time(case, self._needed_s(), self._stage)
                finished = _Finished(case, clock, self._work.do(case, clock))
                self._runtime.pace.note(clock.age_s)
                return finished
            except RejectedInput as error:
                self._rejected(case, clock, error)
            except Unavailable as error:
                put_back(self._runtime, case, error)
                self._count(case, clock, "unavailable", error.code)
            except OutOfTime as error:
                leave_for_later(self._runtime, case, error)
                self._count(case, clock, "out-of-time", error.code)
            except (Exception, SystemExit) as error:  # the edge: Celery would exit on some of these
                self._crashed(case, clock, error)
            return None

    def _needed_s(self) -> float:
        """What a case takes here as a rule, and behind us at the least."""
        pool = self._runtime.pool
        return self._runtime.pace.typical_s(least_s_of(pool)) + least_s_after(pool)

    def _write(self, finished: Sequence[_Finished[Done]]) -> None:
        try:
            written = self._work.write([each.done for each in finished])
        except Unavailable as error:
            for each in finished:
                with about_case(each.case.case_id, stage=self._stage):
                    put_back(self._runtime, each.case, error)
                self._count(each.case, each.clock, "unavailable", error.code)
            return
        except (Exception, SystemExit) as error:
            if len(finished) > 1:
                # Whoever spoils the commit is found by itself; the others' results stand.
                for each in finished:
                    self._write([each])
            else:
                with about_case(finished[0].case.case_id, stage=self._stage):
                    self._crashed(finished[0].case, finished[0].clock, error)
            return
        self._settle(finished, written)

    def _settle(self, finished: Sequence[_Finished[Done]], written: Written) -> None:
        for each in finished:
            if each.case.case_id in written.stood:
                self._count(each.case, each.clock, "done")
            elif refusal := written.refused.get(each.case.case_id):
                with about_case(each.case.case_id, stage=self._stage):
                    self._rejected(each.case, each.clock, refusal)
            else:
                metrics.STALE_COMPLETIONS.labels(self._stage).inc()
                logger().info("work_superseded", case_id=each.case.case_id.hex, stage=self._stage)
                self._count(each.case, each.clock, "superseded", Superseded.code)

    def _rejected(self, case: Claimed, clock: StageClock, error: RejectedInput) -> None:
        if isinstance(error, IdentityMismatch):
            metrics.IDENTITY_MISMATCHES.labels(error.facts.get("hop", self._stage)).inc()
        end_with_failure(self._runtime, case, error, clock)
        self._count(case, clock, "rejected", error.code)

    def _crashed(self, case: Claimed, clock: StageClock, error: BaseException) -> None:
        logger().error("stage_crashed", exc_info=error)
        put_back(self._runtime, case, StageCrashed())
        self._count(case, clock, "crashed", "crashed")

    def _count(self, case: Claimed, clock: StageClock, outcome: str, code: str | None = None) -> None:
        metrics.ATTEMPTS.labels(self._stage, outcome).inc()
        self._runtime.events.ended(case, self._runtime.pool, runtime_s=clock.age_s, code=code)


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
    """Queue a claimed case again, a little later each time; the sweeper rings when it is due and its budget allows."""
    states = POOL_STATES[runtime.pool]
    entered = states.queued
    if isinstance(error, TensorMissing) and runtime.pool is not Pool.INTAKE:
        # Its tensors went with the host that held them: it is prepared once more.
        entered = CaseState.ACCEPTED
    is_free = isinstance(error, SourceBusy)
    delay_s = BUSY_DELAY_S if is_free else redo_delay_s(case.tries, left_s=case.left_s, jitter=random.random)
    logger().warning("case_put_back", code=error.code, facts=error.facts, tries=case.tries, delay_s=delay_s)
    _give_back(runtime, case, Return(states.claimed, entered, error.code, delay_s=delay_s, is_free=is_free, is_strike=error.is_strike))


def require_time(case: Claimed, needed_s: float, stage: str) -> None:
    """Refuse to begin what cannot be finished in time.

    Raises
    ------
    ExpiredAtStage
        Less time is left than the work needs.
    """
    left_s = case.left_s
    if left_s < needed_s:
        metrics.EXPIRED_AT_STAGE.labels(stage).inc()
        raise ExpiredAtStage("too little time is left", left_s=round(left_s, 2), needed_s=round(needed_s, 2))


def leave_for_later(runtime: PoolRuntime, case: Claimed, error: OutOfTime) -> None:
    """Let go of a claimed case whose time is over: it is not tried again before its deadline.

    Back in its queue it is the guard's, who answers it and puts it off. A case that was put off before waits for its next try.
    """
    states = POOL_STATES[runtime.pool]
    logger().warning("case_out_of_time", code=error.code, facts=error.facts, tries=case.tries)
    if case.lane is not Lane.COMPENSATION:
        delay_s = max(LATER_S, case.left_s)
        is_free = isinstance(error, ExpiredAtStage)
        _give_back(runtime, case, Return(states.claimed, states.queued, error.code, delay_s=delay_s, is_free=is_free))
        return
    try:
        try_later(runtime.services, case, states.claimed, reason=error.code)
    except Unavailable as failed:
        logger().warning("not_put_off", code=failed.code)


def _give_back(runtime: PoolRuntime, case: Claimed, why: Return) -> None:
    try:
        give_back(runtime.services.ledger, [(case.case_id, case.attempt)], why, worker=runtime.services.worker)
    except Unavailable as failed:
        logger().warning("not_put_back", code=failed.code)
