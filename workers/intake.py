"""The intake pool: fetch and preprocess, under one claim, then into the waiting line."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from celery import Celery

from pipeline import flow
from pipeline.cases.states import CaseState
from pipeline.deadline import utc_now
from pipeline.dicom.decoder import Decoder
from pipeline.dicom.instance import DecodeLimits
from pipeline.errors import QueueUnavailable
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


@dataclass(frozen=True, slots=True)
class Prepared:
    """A case after both stages."""

    case: Claimed
    prepared: PreparedCase
    timeline: dict[str, Any]

    @property
    def entered(self) -> CaseState:
        """Where it goes: a case without a single image for the model needs no inference."""
        return CaseState.AWAITING_INFERENCE if self.prepared.model_input else CaseState.AWAITING_REPORT


class IntakeWork:
    """`PoolWork` of the intake pool."""

    def __init__(self, runtime: PoolRuntime, tools: PreprocessTools) -> None:
        self._runtime, self._tools = runtime, tools

    def do(self, case: Claimed, clock: StageClock) -> Prepared:
        """Fetch and preprocess one case."""
        services = self._runtime.services
        clock.enter(flow.FETCH.name)
        fetched = fetch(case.input, uploads=services.uploads, sources=services.sources)
        clock.enter(flow.PREPROCESS.name)
        tools = replace(self._tools, until_s=case.until_s)
        prepared = preprocess(fetched, case_id=case.case_id, generation=case.attempt, tools=tools, now=utc_now())
        return Prepared(case, prepared, clock.finish())

    def write(self, done: Sequence[Prepared]) -> set[UUID]:
        """Hand cases on: into the waiting line, or past it to reporting. What a stale claim parked is freed."""
        moved: set[UUID] = set()
        for entered in (CaseState.AWAITING_INFERENCE, CaseState.AWAITING_REPORT):
            if group := [each for each in done if each.entered is entered]:
                moved |= self._hand_on(group, entered)
        for each in done:
            if each.case.case_id not in moved:
                free_tensors(self._runtime.services, CaseWork(prepared=each.prepared))
        return moved

    def _hand_on(self, group: Sequence[Prepared], entered: CaseState) -> set[UUID]:
        services = self._runtime.services
        items = [
            HandOn(each.case.case_id, each.case.attempt, {"prepared": each.prepared.model_dump(mode="json")}, each.timeline)
            for each in group
        ]
        rungs = hand_on(services.ledger, items, left=CaseState.FETCHING, entered=entered, worker=services.worker)
        if entered is CaseState.AWAITING_REPORT:
            ring(self._runtime.app, Pool.REPORTING, rungs)
        else:
            by_case = {each.case.case_id: each for each in group}
            ring(self._runtime.app, Pool.INFERENCE, _stand_in_line(services, [(by_case[rung.case_id], rung) for rung in rungs]))
        return {rung.case_id for rung in rungs}


def _stand_in_line(services: Services, moved: Sequence[tuple[Prepared, Rung]]) -> list[Rung]:
    """Put cases in their models' lines; return one ring for each line that was empty."""
    owed: list[Rung] = []
    by_model: defaultdict[str, list[tuple[Prepared, Rung]]] = defaultdict(list)
    for each, rung in moved:
        by_model[each.prepared.model].append((each, rung))
    for model, of_model in by_model.items():
        places = [place_in_line(rung, accepted_at=each.case.accepted_at, image_count=_image_count(each)) for each, rung in of_model]
        try:
            if services.line(model).join(places):
                owed.append(of_model[0][1])
        except QueueUnavailable as error:
            # The ledger has them; the sweeper sees that the line does not.
            logger().warning("not_in_line", code=error.code, case_count=len(places))
    return owed


def _image_count(each: Prepared) -> int:
    return each.prepared.model_input.shape[0] if each.prepared.model_input else 0


def register(app: Celery, runtime: PoolRuntime, decoder: Decoder) -> None:
    """Give the pool its task."""
    services = runtime.services
    tools = PreprocessTools(decoder, services.cards, services.tensors, decode_timeout_s=services.settings.decode_timeout_s)
    work = IntakeWork(runtime, tools)

    def ring_intake(**message: Any) -> None:
        """Fetch some cases' instances, make their model input, put them in line."""
        run_stage(runtime, message, work)

    app.task(name=flow.doorbell_of(Pool.INTAKE))(ring_intake)


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
