"""What a process does round the forward passes of one batch: shows it, hands its results on, ends who failed, and counts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from pipeline.batching.latency import LatencyModel
from pipeline.batching.memory_cap import MemoryCap
from pipeline.batching.rule import Fire
from pipeline.cases.states import CaseState
from pipeline.errors import IdentityMismatch, Quarantined, RejectedInput, SecondreadError, Unavailable
from pipeline.flow import INFER, Pool
from pipeline.observability import metrics
from pipeline.observability.log import about_case, logger
from pipeline.persistence.ledger.claims import Claimed, HandOn, hand_on
from pipeline.persistence.waiting_line import Waiting
from pipeline.stages.infer import BatchResult, Firing
from workers.doorbell import ring
from workers.stage_task import PoolRuntime, StageClock, end_with_failure, put_back


@dataclass(frozen=True, slots=True)
class FiredBatch:
    """One batch that fires, and what it was decided on."""

    firing: Firing
    model: str
    fire: Fire
    waiting: Sequence[Waiting]
    """Its members' places in the line, others' among them."""
    ceiling: int
    """Images that it might have held."""
    held_s: float
    """How long the idle device was held back for it."""


def clocks_for(cases: Sequence[Claimed]) -> dict[UUID, StageClock]:
    """A clock for each case, in its stage from now on."""
    clocks = {case.case_id: StageClock(case.lane) for case in cases}
    for clock in clocks.values():
        clock.enter(INFER.name)
    return clocks


def hand_results_on(runtime: PoolRuntime, cases: Sequence[Claimed], result: BatchResult, clocks: Mapping[UUID, StageClock]) -> None:
    """Move who has an answer to reporting, all in one statement; end, or put back, who has none."""
    services = runtime.services
    done = [
        HandOn(case.case_id, case.attempt, {"inferred": inferred.model_dump(mode="json")}, clocks[case.case_id].finish())
        for case in cases
        if (inferred := result.inferred.get(case.case_id))
    ]
    if done:
        moved = hand_on(services.ledger, done, left=CaseState.INFERRING, entered=CaseState.AWAITING_REPORT, worker=services.worker)
        ring(runtime.app, Pool.REPORTING, moved)
        metrics.STALE_COMPLETIONS.labels(INFER.name).inc(len(done) - len(moved))
    for case in cases:
        if error := result.failed.get(case.case_id):
            with about_case(case.case_id, stage=INFER.name):
                _end(runtime, case, error, clocks[case.case_id])


def _end(runtime: PoolRuntime, case: Claimed, error: SecondreadError, clock: StageClock) -> None:
    if isinstance(error, IdentityMismatch):
        metrics.IDENTITY_MISMATCHES.labels(INFER.name).inc()
    if isinstance(error, Quarantined):
        metrics.QUARANTINED.labels(Pool.INFERENCE.value).inc()
    if isinstance(error, RejectedInput):
        end_with_failure(runtime, case, error, clock)
    elif isinstance(error, Unavailable):
        put_back(runtime, case, error)


def learn(result: BatchResult, *, latency: LatencyModel, cap: MemoryCap) -> None:
    """Teach what a device costs and holds. What was split or failed is no sample of its duration."""
    for each in result.passes:
        if each.outcome == "done":
            cap.ran(each.images)
        elif each.outcome == "out of memory":
            cap.overflowed(each.images)
    if not result.failed and result.forward_passes == 1:
        latency.learn(result.passes[0].images, result.forward_s)


def show_begun(runtime: PoolRuntime, batch: FiredBatch, cases: Sequence[Claimed]) -> None:
    """Show the batch and its cases as tasks; a case was received when it joined the line."""
    fire, events = batch.fire, runtime.events
    ready_at = {place.case_id: place.ready_at for place in batch.waiting}
    for case in cases:
        events.began(case, Pool.INFERENCE, received_at=ready_at[case.case_id])
    facts = {"n": fire.image_count, "cases": len(cases), "reason": fire.reason, "predicted_ms": round(fire.predicted_s * 1000)}
    events.batch_began(batch.firing.batch_id, {"model": batch.model, **facts})


def show_ended(runtime: PoolRuntime, batch: FiredBatch, cases: Sequence[Claimed], result: BatchResult, *, runtime_s: float) -> None:
    """Show what became of the batch and of each case."""
    events = runtime.events
    for case in cases:
        error = result.failed.get(case.case_id)
        events.ended(case, Pool.INFERENCE, runtime_s=runtime_s, code=error.code if error else None)
    facts = {"actual_ms": round(result.forward_s * 1000), "failed": len(result.failed)}
    events.batch_ended(batch.firing.batch_id, facts, runtime_s=runtime_s)


def observe(batch: FiredBatch, result: BatchResult, *, cap: MemoryCap) -> None:
    """Count and log a batch that has run."""
    fire, device = batch.fire, batch.firing.device
    metrics.BATCH_IMAGES.labels(batch.model).observe(fire.image_count)
    metrics.BATCH_HOLD_SECONDS.labels(batch.model).observe(batch.held_s)
    metrics.BATCHES_FIRED.labels(batch.model, fire.reason).inc()
    metrics.FORWARD_SECONDS.labels(device).observe(result.forward_s)
    metrics.MEMORY_CAP.labels(batch.model, device).set(cap.images)
    overflows = sum(each.outcome == "out of memory" for each in result.passes)
    if overflows:
        metrics.OUT_OF_MEMORY.labels(batch.model, device).inc(overflows)
        logger().warning("batch_did_not_fit", model=batch.model, images=[each.images for each in result.passes], cap=cap.images)
    logger().info(
        "batch_fired",
        model=batch.model,
        reason=fire.reason,
        images=fire.image_count,
        ceiling=batch.ceiling,
        held_ms=round(batch.held_s * 1000),
        predicted_ms=round(fire.predicted_s * 1000),
        actual_ms=round(result.forward_s * 1000),
        slack_ms=round(fire.slack_s * 1000),
        forward_passes=result.forward_passes,
    )
