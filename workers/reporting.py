"""The reporting pool: postprocess and report, under one claim."""

from collections.abc import Sequence
from typing import Any

from celery import Celery

from pipeline import flow
from pipeline.cases.reading import Revision
from pipeline.persistence.ledger.claims import Claimed
from pipeline.persistence.pictures import pack
from pipeline.persistence.uploads import pictures_key
from pipeline.stages.postprocess import postprocess
from pipeline.stages.report import report
from schemas.report import ResultKind
from workers.endings import Reported, Written, complete
from workers.pool_process import pool_runtime, serve
from workers.settings import Settings
from workers.stage_task import PoolRuntime, StageClock, run_stage
from workers.version import PRODUCT_VERSION


class ReportingWork:
    """`PoolWork` of the reporting pool."""

    def __init__(self, runtime: PoolRuntime) -> None:
        self._runtime = runtime

    def do(self, case: Claimed, clock: StageClock) -> Reported:
        """Postprocess and report one case, and keep its pictures."""
        services, prepared = self._runtime.services, case.work.prepared
        if prepared is None:
            raise ValueError("a case came to reporting without intake's part")
        card, _ = services.cards[prepared.model]
        clock.enter(flow.POSTPROCESS.name)
        reading = postprocess(case.work, case_id=case.case_id, received=case.input, card=card, tensors=services.tensors)
        clock.enter(flow.REPORT.name)
        version = case.result_version + 1
        # What follows a preliminary answer is the first final one.
        kind: ResultKind = "final" if version == 1 or case.is_preliminary else "amended"
        revision = Revision(version=version, kind=kind, product_version=PRODUCT_VERSION, at=services.clock.now())
        written, pictures = report(reading, case_id=case.case_id, card=card, revision=revision)
        if pictures:
            services.uploads.write(pictures_key(case.case_id, case.attempt), pack(pictures))
        return Reported(case, written, clock.finish())

    def write(self, done: Sequence[Reported]) -> Written:
        """End cases with their results."""
        return complete(self._runtime.app, self._runtime.services, done)


def register(app: Celery, runtime: PoolRuntime) -> None:
    """Give the pool its task."""
    work = ReportingWork(runtime)

    def ring_reporting(**message: Any) -> None:
        """Turn some cases' masks into findings, their findings into reports, and end them."""
        run_stage(runtime, message, work)

    app.task(name=flow.doorbell_of(flow.Pool.REPORTING))(ring_reporting)


def main() -> None:
    """Run the pool: `python -m workers.reporting`."""
    settings = Settings()
    with pool_runtime(flow.Pool.REPORTING, settings, connections=settings.reporting_threads) as runtime:
        register(runtime.app, runtime)
        serve(runtime, threads=settings.reporting_threads)


if __name__ == "__main__":
    main()
