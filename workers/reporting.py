"""The reporting pool: postprocess and report, under one claim."""

from typing import Any

from celery import Celery

from pipeline import flow
from pipeline.cases.reading import Revision
from pipeline.cases.states import CaseState
from pipeline.deadline import utc_now
from pipeline.persistence.ledger.claims import Claimed
from pipeline.stages.postprocess import postprocess
from pipeline.stages.report import report
from schemas.report import ResultKind
from workers.endings import Ending, complete
from workers.pool_process import pool_runtime, serve
from workers.settings import Settings
from workers.stage_task import PoolRuntime, StageClock, run_stage
from workers.version import PRODUCT_VERSION


def register(app: Celery, runtime: PoolRuntime) -> None:
    """Give the pool its task."""

    def body(case: Claimed, clock: StageClock) -> None:
        write_report(runtime, case, clock)

    def postprocess_case(**message: Any) -> None:
        """Turn a case's masks into findings, its findings into a report, and end it."""
        run_stage(runtime, message, body)

    app.task(name=flow.doorbell_of(flow.Pool.REPORTING))(postprocess_case)


def write_report(runtime: PoolRuntime, case: Claimed, clock: StageClock) -> None:
    """Do both stages for one claimed case."""
    services = runtime.services
    prepared = case.work.prepared
    if prepared is None:
        raise ValueError("a case came to reporting without intake's part")
    card, _ = services.cards[prepared.model]
    clock.enter(flow.POSTPROCESS.name)
    reading = postprocess(case.work, case_id=case.case_id, card=card, tensors=services.tensors)
    clock.enter(flow.REPORT.name)
    version = case.result_version + 1
    kind: ResultKind = "final" if version == 1 else "amended"
    revision = Revision(version=version, kind=kind, product_version=PRODUCT_VERSION, at=utc_now())
    written, pictures = report(reading, case_id=case.case_id, card=card, revision=revision)
    for name, data in pictures.items():
        services.uploads.write(f"{case.case_id.hex}/results/{version}/{name}", data)
    complete(runtime.app, services, Ending(case, CaseState.POSTPROCESSING, clock.finish()), written)


def main() -> None:
    """Run the pool: `python -m workers.reporting`."""
    settings = Settings()
    with pool_runtime(flow.Pool.REPORTING, settings, connections=settings.reporting_threads) as runtime:
        register(runtime.app, runtime)
        serve(runtime, threads=settings.reporting_threads)


if __name__ == "__main__":
    main()
