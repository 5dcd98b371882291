"""The intake pool: fetch and preprocess, under one claim, then into the waiting line."""

from typing import Any

from celery import Celery

from pipeline import flow
from pipeline.cases.states import CaseState
from pipeline.deadline import utc_now
from pipeline.dicom.decoder import Decoder
from pipeline.dicom.instance import DecodeLimits
from pipeline.errors import QueueUnavailable, StaleCompletion
from pipeline.flow import Pool
from pipeline.observability.log import logger
from pipeline.persistence.ledger.claims import Claimed, HandOn, Rung, hand_on
from pipeline.stages.fetch import fetch
from pipeline.stages.preprocess import PreprocessTools, preprocess
from schemas.work import CaseWork, PreparedCase
from workers.doorbell import place_in_line, ring
from workers.endings import free_tensors
from workers.pool_process import pool_runtime, serve
from workers.settings import Settings
from workers.stage_task import PoolRuntime, StageClock, run_stage
from workers.wiring import Services


def register(app: Celery, runtime: PoolRuntime, decoder: Decoder) -> None:
    """Give the pool its task."""
    services = runtime.services
    tools = PreprocessTools(decoder, services.cards, services.tensors, decode_timeout_s=services.settings.decode_timeout_s)

    def body(case: Claimed, clock: StageClock) -> None:
        prepare(runtime, tools, case, clock)

    def fetch_case(**message: Any) -> None:
        """Fetch a case's instances, make its model input, put it in line."""
        run_stage(runtime, message, body)

    app.task(name=flow.doorbell_of(Pool.INTAKE))(fetch_case)


def prepare(runtime: PoolRuntime, tools: PreprocessTools, case: Claimed, clock: StageClock) -> None:
    """Do both stages for one claimed case and hand it on.

    Raises
    ------
    StaleCompletion
        The claim passed to another worker meanwhile; what we parked is freed.
    """
    services = runtime.services
    clock.enter(flow.FETCH.name)
    fetched = fetch(case.input, uploads=services.uploads, sources=services.sources)
    clock.enter(flow.PREPROCESS.name)
    prepared = preprocess(fetched, case_id=case.case_id, generation=case.attempt, tools=tools, now=utc_now())
    entered = CaseState.AWAITING_INFERENCE if prepared.model_input else CaseState.AWAITING_REPORT
    done = HandOn(case.case_id, case.attempt, {"prepared": prepared.model_dump(mode="json")}, clock.finish())
    moved = hand_on(services.ledger, [done], left=CaseState.FETCHING, entered=entered, worker=services.worker)
    if not moved:
        free_tensors(services, CaseWork(prepared=prepared))
        raise StaleCompletion("the claim passed on while the case was prepared", attempt=case.attempt)
    if entered is CaseState.AWAITING_INFERENCE:
        if _stand_in_line(services, case, prepared, moved[0]):
            ring(runtime.app, Pool.INFERENCE, moved[0])
    else:
        ring(runtime.app, Pool.REPORTING, moved[0])


def _stand_in_line(services: Services, case: Claimed, prepared: PreparedCase, rung: Rung) -> bool:
    """Put the case in its line; say whether a ring is owed."""
    image_count = prepared.model_input.shape[0] if prepared.model_input else 0
    try:
        return services.line(prepared.model).join([place_in_line(rung, accepted_at=case.accepted_at, image_count=image_count)])
    except QueueUnavailable as error:
        # The ledger has it; the sweeper sees that the line does not.
        logger().warning("not_in_line", code=error.code)
        return False


def main() -> None:
    """Run the pool: `python -m workers.intake`."""
    settings = Settings()
    limits = DecodeLimits(pixel_budget_bytes=settings.decode_pixel_bytes, memory_bytes=settings.decode_memory_bytes)
    decoder = Decoder(child_count=settings.decode_children, limits=limits)
    try:
        with pool_runtime(Pool.INTAKE, settings, connections=settings.intake_threads) as runtime:
            decoder.warm()
            register(runtime.app, runtime, decoder)
            serve(runtime, threads=settings.intake_threads)
    finally:
        decoder.close()


if __name__ == "__main__":
    main()
