"""What is told of a batch: Flower's events, the metrics, and one line of the log that says why it fired."""

from collections.abc import Sequence

from pipeline.batching.rule import Fire
from pipeline.flow import Pool
from pipeline.observability import metrics
from pipeline.observability.log import logger
from pipeline.persistence.ledger.claims import Claimed
from pipeline.stages.infer import BatchResult, Firing
from workers.flower_events import TaskEvents
from workers.served import Chosen


def show_begun(events: TaskEvents, batch_id: str, chosen: Chosen, fire: Fire, cases: Sequence[Claimed]) -> None:
    """Show the batch and its cases as tasks; a case was received when it joined the line."""
    ready_at = {place.case_id: place.ready_at for place in chosen.waiting}
    for case in cases:
        events.began(case, Pool.INFERENCE, received_at=ready_at[case.case_id])
    events.batch_began(batch_id, {"model": chosen.model.reference, "cases": len(cases), **facts_of(fire), "held_ms": _ms(chosen.held_s)})


def show_ended(events: TaskEvents, batch_id: str, cases: Sequence[Claimed], result: BatchResult, *, runtime_s: float) -> None:
    """Show that they are over."""
    for case in cases:
        error = result.failed.get(case.case_id)
        events.ended(case, Pool.INFERENCE, runtime_s=runtime_s, code=error.code if error else None)
    events.batch_ended(batch_id, {"actual_ms": _ms(result.forward_s), "failed": len(result.failed)}, runtime_s=runtime_s)


def facts_of(fire: Fire) -> dict[str, object]:
    """Why a batch fired, with the figures that the decision was taken on."""
    return {
        "n": fire.image_count,
        "cap": fire.ceiling,
        "reason": fire.reason,
        "hazard_per_s": round(fire.hazard, 3),
        "newcomer_waits_ms": _ms(fire.newcomer_waits_s),
        "predicted_ms": _ms(fire.predicted_s),
        "slack_ms": _ms(fire.slack_s),
        "riders": fire.rider_count,
        "late": len(fire.late),
    }


def observe(chosen: Chosen, fire: Fire, cases: Sequence[Claimed], result: BatchResult, firing: Firing) -> None:
    """Count and log a batch that has run."""
    reference, line = chosen.model.reference, chosen.model.line.name
    metrics.BATCH_IMAGES.labels(reference).observe(fire.image_count)
    metrics.BATCH_FILL.labels(reference).observe(fire.image_count / fire.ceiling)
    metrics.BATCH_HOLD_SECONDS.labels(reference).observe(chosen.held_s)
    metrics.BATCHES_FIRED.labels(reference, fire.reason).inc()
    metrics.BATCH_RIDERS.labels(reference).inc(fire.rider_count)
    metrics.FORWARD_SECONDS.labels(firing.device).observe(result.forward_s)
    if result.forward_passes == 1 and fire.predicted_s > 0:
        metrics.PREDICTION_RATIO.labels(reference, firing.device).observe(result.forward_s / fire.predicted_s)
    ran = {case.case_id for case in cases}
    for place in chosen.aboard:
        if place.case_id in ran:
            metrics.LINE_WAIT_SECONDS.labels(line, place.lane).observe(max(firing.at.timestamp() - place.ready_at, 0.0))
    logger().info(
        "batch_fired",
        model=reference,
        cases=len(cases),
        held_ms=_ms(chosen.held_s),
        actual_ms=_ms(result.forward_s),
        forward_passes=result.forward_passes,
        **facts_of(fire),
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
