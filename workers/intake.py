"""The intake pool: fetch and preprocess, under one claim, then into the waiting line."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from celery import Celery

from pipeline import flow
from pipeline.cases.states import CaseState
from pipeline.dicom.decoder import Decoder
from pipeline.dicom.instance import DecodeLimits
from pipeline.errors import QueueUnavailable
from pipeline.flow import Pool
from pipeline.inference.shelf import cards_for
from pipeline.observability.log import logger
from pipeline.persistence.ledger.claims import Claimed, HandOn, Rung, hand_on, read_unclaimed
from pipeline.stages.fetch import fetch
from pipeline.stages.preprocess import PreprocessTools, preprocess
from schemas.work import CaseWork, PreparedCase
from workers.doorbell import place_in_line, ring
from workers.endings import Written, free_tensors
from workers.pool_process import pool_runtime, serve
from workers.serving import ServingPlans
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
        self._plans = ServingPlans(runtime.services.ledger)

    def do(self, case: Claimed, clock: StageClock) -> Prepared:
        """Fetch and preprocess one case."""
        services = self._runtime.services
        clock.enter(flow.FETCH.name)
        limit_s = min(flow.FETCH.limit_s, case.left_s)
        fetched = fetch(case.input, case_id=case.case_id, uploads=services.uploads, sources=services.sources, limit_s=limit_s)
        clock.enter(flow.PREPROCESS.name)
        cards = cards_for(services.cards, self._plans.current(), case.case_id)
        tools = replace(self._tools, cards=cards, until_s=case.until_s)
        prepared = preprocess(fetched, case_id=case.case_id, generation=case.attempt, tools=tools, now=services.clock.now())
        return Prepared(case, prepared, clock.finish())

    def write(self, done: Sequence[Prepared]) -> Written:
        """Hand cases on: into the waiting line, or past it to reporting. What a stale claim parked is freed."""
        stood: set[UUID] = set()
        for entered in (CaseState.AWAITING_INFERENCE, CaseState.AWAITING_REPORT):
            if group := [each for each in done if each.entered is entered]:
                moved = self._hand_on(group, entered)
                stood |= moved
                stood |= {each.case.case_id for each in group if each.case.case_id not in moved and self._was_handed_on(each)}
        return Written(stood)

    def _was_handed_on(self, each: Prepared) -> bool:
        """Whether a case that did not move had moved with this very work before, in a commit that we took for failed.

        Then its tensors are waited for. Otherwise the claim is lost, nobody will ever name what it parked, and it is freed.
        """
        services = self._runtime.services
        row = read_unclaimed(services.ledger, each.case.case_id)
        if row is not None and row.work.prepared == each.prepared:
            return True
        free_tensors(services, each.case.case_id, CaseWork(prepared=each.prepared))
        return False

    def _hand_on(self, group: Sequence[Prepared], entered: CaseState) -> set[UUID]:
        services = self._runtime.services
        items = [HandOn(each.case.case_id, each.case.attempt, _work(each), each.timeline) for each in group]
        rungs = hand_on(services.ledger, items, left=CaseState.FETCHING, entered=entered, worker=services.worker)
        if entered is CaseState.AWAITING_REPORT:
            ring(self._runtime.app, Pool.REPORTING, rungs)
        else:
            by_case = {each.case.case_id: each for each in group}
            ring(self._runtime.app, Pool.INFERENCE, _stand_in_line(services, [(by_case[rung.case_id], rung) for rung in rungs]))
        return {rung.case_id for rung in rungs}


def _work(each: Prepared) -> dict[str, Any]:
    """The row's work from now on. A case that is prepared anew has no answer any more."""
    return {"prepared": each.prepared.model_dump(mode="json"), "inferred": None}


def _stand_in_line(services: Services, moved: Sequence[tuple[Prepared, Rung]]) -> list[Rung]:
    """Put cases in their models' lines; return one ring for each line that was empty."""
    owed: list[Rung] = []
    by_model: defaultdict[str, list[tuple[Prepared, Rung]]] = defaultdict(list)
    for each, rung in moved:
        by_model[each.prepared.model].append((each, rung))
    for model, of_model in by_model.items():
        places = [
            place_in_line(rung, accepted_at=each.case.accepted_at, image_count=_image_count(each), now_s=services.clock.unix_s())
            for each, rung in of_model
        ]
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
