"""What a process tells of one batch: Flower's events, the metrics, and one line of the log that says why it fired."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.batching.memory_cap import MemoryCap
from pipeline.batching.rule import Fire
from pipeline.flow import Pool
from pipeline.observability import metrics
from pipeline.observability.log import logger
from pipeline.persistence.ledger.claims import Claimed
from pipeline.persistence.waiting_line import Waiting
from pipeline.stages.infer import BatchResult, Firing
from workers.stage_task import PoolRuntime


@dataclass(frozen=True, slots=True)
class FiredBatch:
    """One batch that fires, and what it was decided on."""

    firing: Firing
    model: str
    line: str
    fire: Fire
    waiting: Sequence[Waiting]
    """Its members' places in the line, others' among them."""
    held_s: float
    """How long the idle device was held back for it."""


def show_begun(runtime: PoolRuntime, batch: FiredBatch, cases: Sequence[Claimed]) -> None:
    """Show the batch and its cases as tasks; a case was received when it joined the line."""
    events = runtime.events
    ready_at = {place.case_id: place.ready_at for place in batch.waiting}
    for case in cases:
        events.began(case, Pool.INFERENCE, received_at=ready_at[case.case_id])
    events.batch_began(batch.firing.batch_id, {"model": batch.model, "cases": len(cases), **facts_of(batch)})


def show_ended(runtime: PoolRuntime, batch: FiredBatch, cases: Sequence[Claimed], result: BatchResult, *, runtime_s: float) -> None:
    """Show what became of the batch and of each case."""
    events = runtime.events
    for case in cases:
        error = result.failed.get(case.case_id)
        events.ended(case, Pool.INFERENCE, runtime_s=runtime_s, code=error.code if error else None)
    facts = {"actual_ms": _ms(result.forward_s), "failed": len(result.failed)}
    events.batch_ended(batch.firing.batch_id, facts, runtime_s=runtime_s)


def facts_of(batch: FiredBatch) -> dict[str, object]:
    """Why a batch fired, with the figures that the decision was taken on."""
    fire = batch.fire
    return {
        "n": fire.image_count,
        "cap": fire.ceiling,
        "reason": fire.reason,
        "held_ms": _ms(batch.held_s),
        "hazard_per_s": round(fire.hazard, 3),
        "newcomer_waits_ms": _ms(fire.newcomer_waits_s),
        "predicted_ms": _ms(fire.predicted_s),
        "slack_ms": _ms(fire.slack_s),
        "riders": fire.rider_count,
        "late": len(fire.late),
    }


def observe(batch: FiredBatch, cases: Sequence[Claimed], result: BatchResult, *, cap: MemoryCap) -> None:
    """Count and log a batch that has run."""
    fire, firing = batch.fire, batch.firing
    metrics.BATCH_IMAGES.labels(batch.model).observe(fire.image_count)
    metrics.BATCH_FILL.labels(batch.model).observe(fire.image_count / fire.ceiling)
    metrics.BATCH_HOLD_SECONDS.labels(batch.model).observe(batch.held_s)
    metrics.BATCHES_FIRED.labels(batch.model, fire.reason).inc()
    metrics.BATCH_RIDERS.labels(batch.model).inc(fire.rider_count)
    metrics.FORWARD_SECONDS.labels(firing.device).observe(result.forward_s)
    if result.forward_passes == 1 and fire.predicted_s > 0:
        metrics.PREDICTION_RATIO.labels(batch.model, firing.device).observe(result.forward_s / fire.predicted_s)
    metrics.MEMORY_CAP.labels(batch.model, firing.device).set(cap.images)
    if overflows := sum(each.outcome == "out of memory" for each in result.passes):
        metrics.OUT_OF_MEMORY.labels(batch.model, firing.device).inc(overflows)
        logger().warning("batch_did_not_fit", model=batch.model, images=[each.images for each in result.passes], cap=cap.images)
    ready_at = {place.case_id: place.ready_at for place in batch.waiting}
    for case in cases:
        metrics.LINE_WAIT_SECONDS.labels(batch.line, case.lane.value).observe(max(firing.at.timestamp() - ready_at[case.case_id], 0.0))
    logger().info(
        "batch_fired",
        model=batch.model,
        cases=len(cases),
        actual_ms=_ms(result.forward_s),
        forward_passes=result.forward_passes,
        **facts_of(batch),
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
