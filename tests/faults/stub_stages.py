"""Worker processes with the product's own machinery and stages that do nothing but carry a digest."""

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, cast
from uuid import uuid4

from celery import Celery

from pipeline import flow
from pipeline.cases.digests import chain_of
from pipeline.cases.states import CaseState
from pipeline.deadline import utc_now
from pipeline.dicom.decoder import Decoder
from pipeline.errors import Unavailable
from pipeline.flow import Pool
from pipeline.observability.log import logger
from pipeline.persistence.ledger.claims import Claimed, HandOn, claim_cases, hand_on
from pipeline.persistence.waiting_line import AnothersTurn
from pipeline.stages.fetch import fetch
from pipeline.stages.preprocess import PreprocessTools
from schemas.identifiers import public_id
from schemas.report import Report
from schemas.tensor import TensorHandle
from schemas.work import InferredCase, PreparedCase, PreparedInstance
from tests.faults.echo import Echo
from tests.faults.history import digest_of
from workers.doorbell import ring
from workers.endings import Reported, Written, complete
from workers.intake import IntakeWork, Prepared
from workers.isolation import apart, send_back
from workers.pool_process import pool_runtime, serve
from workers.settings import Settings
from workers.stage_task import PoolRuntime, StageClock, parse_message, run_stage

BATCH = 16
HOLD_S = 2.0


@dataclass(frozen=True, slots=True)
class Manner:
    """How the stub stages behave."""

    threads: int = 2
    body_s: float = 0.0
    """How long each case takes in reporting."""
    copies: int = 1
    """How often each doorbell is sent."""


def _handle(digest: str, case: Claimed) -> TensorHandle:
    expires_at = utc_now() + timedelta(minutes=10)
    return TensorHandle(
        store="shared_memory",
        key=uuid4().hex,
        shape=(1, 1, 1, 1),
        dtype="uint8",
        digest=digest,
        case_id=case.case_id,
        generation=case.attempt,
        expires_at=expires_at,
    )


def _body(case: Claimed, pool: Pool, body_s: float = 0.0) -> None:
    """A case whose reference names a pool is held there: for whoever freezes the worker."""
    held_s = HOLD_S if case.client_reference == f"hold {pool.value}" else body_s
    # Even a sleep of nothing gives the processor away.
    if held_s:
        time.sleep(held_s)


class StubIntake(IntakeWork):
    """Intake whose image is its key, or what a source gives for it; what it writes, and how, is the product's."""

    def do(self, case: Claimed, clock: StageClock) -> Prepared:
        """Digest the image."""
        clock.enter(flow.FETCH.name)
        digest = digest_of(case.input.instances[0].key)
        if case.input.source != "uploads":
            services = self._runtime.services
            (fetched,) = fetch(
                case.input, case_id=case.case_id, uploads=services.uploads, sources=services.sources, limit_s=flow.FETCH.limit_s
            )
            digest = fetched.digest
        clock.enter(flow.PREPROCESS.name)
        _body(case, Pool.INTAKE)
        model = next(iter(self._runtime.services.cards))
        instance = PreparedInstance(digest=digest)
        prepared = PreparedCase(model=model, instances=(instance,), images=(), model_input=_handle(digest, case))
        return Prepared(case, prepared, clock.finish())


class StubReporting:
    """`PoolWork` whose report says what the model saw; the product writes it."""

    def __init__(self, runtime: PoolRuntime, manner: Manner) -> None:
        self._runtime, self._manner = runtime, manner

    def do(self, case: Claimed, clock: StageClock) -> Reported:
        """Word the model's answer."""
        clock.enter(flow.REPORT.name)
        _body(case, Pool.REPORTING, self._manner.body_s)
        if case.work.prepared is None or case.work.inferred is None:
            raise ValueError("a case came to reporting without its parts")
        report = Report(
            case_id=public_id("case", case.case_id),
            version=case.result_version + 1,
            kind="final",
            outcome="nothing_found",
            summary="A stub's report.",
            is_complete=True,
            study_instance_uid=None,
            images=(),
            input_digest=chain_of(instance.digest for instance in case.work.prepared.instances),
            model_input_digest=case.work.prepared.model_input.digest if case.work.prepared.model_input else None,
            model_output_digest=case.work.inferred.probability.digest,
            limits=(),
            created_at=utc_now(),
        )
        return Reported(case, report, clock.finish())

    def write(self, done: Sequence[Reported]) -> Written:
        """End cases with their results."""
        return complete(self._runtime.app, self._runtime.services, done)


class StubInference:
    """The model thread: takes cases from the waiting line, claims them, answers with a digest, hands them on."""

    def __init__(self, runtime: PoolRuntime) -> None:
        self._runtime = runtime
        self._line = runtime.services.line(next(iter(runtime.services.cards)))
        self.rung = threading.Event()
        threading.Thread(target=self._live, name="model", daemon=True).start()

    def _live(self) -> None:
        while True:
            self.rung.wait(1.0)
            self.rung.clear()
            try:
                while self._turn():
                    pass
            except Unavailable as error:
                logger().warning("stub_waits", code=error.code)

    def _turn(self) -> bool:
        services = self._runtime.services
        view = self._line.look(services.worker, limit=BATCH, now=time.time())
        if isinstance(view, AnothersTurn) or not view.waiting:
            return False
        taken = self._line.take(services.worker, [case.case_id for case in view.waiting], busy_until=None)
        if taken:
            seen_no = max(case.publish_no for case in view.waiting)
            claimed = claim_cases(services.ledger, taken, pool=Pool.INFERENCE, worker=services.worker, seen_no=seen_no)
            together, others = apart(claimed)
            send_back(services, self._line, view.waiting, others)
            if together:
                self._run(together)
        return bool(view.waiting)

    def _run(self, cases: Sequence[Claimed]) -> None:
        services = self._runtime.services
        with self._runtime.leases.holding([(case.case_id, case.attempt) for case in cases]):
            done = [HandOn(case.case_id, case.attempt, {"inferred": _inferred(case).model_dump(mode="json")}, {}) for case in cases]
            moved = hand_on(services.ledger, done, left=CaseState.INFERRING, entered=CaseState.AWAITING_REPORT, worker=services.worker)
        ring(self._runtime.app, Pool.REPORTING, moved)


def _inferred(case: Claimed) -> InferredCase:
    if case.work.prepared is None or case.work.prepared.model_input is None:
        raise ValueError("a case came to inference without a model input")
    return InferredCase(
        model=case.work.prepared.model,
        weights_digest="0" * 64,
        probability=_handle(digest_of(case.work.prepared.model_input.digest), case),
        scores=(),
        batch_id="stub",
        batch_size=1,
        batch_position=0,
        fired_because="stub",
        device="stub",
        forward_s=0.0,
    )


def serve_pool(pool: Pool, manner: Manner, intake: type[StubIntake] = StubIntake) -> None:
    """Run one pool until it is killed."""
    settings = Settings()
    with pool_runtime(pool, settings, connections=manner.threads + 1) as runtime:
        publisher = cast(Celery, Echo(runtime.app, copies=manner.copies)) if manner.copies > 1 else runtime.app
        answer = _answer_of(pool, replace(runtime, app=publisher), manner, intake)

        def ring_pool(**message: Any) -> None:
            """Answer a doorbell."""
            answer(message)

        runtime.app.task(name=flow.doorbell_of(pool))(ring_pool)
        logger().info("stub_pool", pool=pool.value, pid=os.getpid())
        serve(runtime, threads=manner.threads)


def _answer_of(pool: Pool, runtime: PoolRuntime, manner: Manner, intake: type[StubIntake]) -> Any:
    if pool is Pool.INFERENCE:
        inference = StubInference(runtime)
        return lambda message: inference.rung.set() if parse_message(message) else None
    if pool is Pool.REPORTING:
        reporting = StubReporting(runtime, manner)
        return lambda message: run_stage(runtime, message, reporting)
    services = runtime.services
    # Never started: the stub reads no image.
    tools = PreprocessTools(Decoder(child_count=1), services.cards, services.tensors, decode_timeout_s=1.0)
    work = intake(runtime, tools)
    return lambda message: run_stage(runtime, message, work)
