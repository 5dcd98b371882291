"""What a process does once the forward passes of a batch are done: hands its results on, ends who failed, and learns."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from pipeline.batching.latency import LatencyModel
from pipeline.batching.memory_cap import MemoryCap
from pipeline.cases.states import CaseState
from pipeline.errors import IdentityMismatch, Quarantined, RejectedInput, SecondreadError, Unavailable
from pipeline.flow import INFER, Pool
from pipeline.observability import metrics
from pipeline.observability.log import about_case
from pipeline.persistence.ledger.claims import Claimed, HandOn, hand_on
from pipeline.stages.infer import BatchResult
from workers.doorbell import ring
from workers.stage_task import PoolRuntime, StageClock, end_with_failure, put_back


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
