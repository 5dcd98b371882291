"""Forms batches: watches the waiting line, asks the rule, takes the members as it fires, runs the model.

Nothing waits in this process but the batch that it runs, so a crash loses a lease and a drain loses nothing.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

from uuid6 import uuid7

from pipeline.batching.latency import LatencyModel
from pipeline.batching.rule import Ceilings, Fire, Hold, Situation, decide
from pipeline.cases.states import CaseState
from pipeline.errors import ExpiredAtStage, IdentityMismatch, RejectedInput, Unavailable
from pipeline.flow import INFER, Pool, least_s_after
from pipeline.inference.registry import ModelRegistry
from pipeline.observability import metrics
from pipeline.observability.log import about_case, logger
from pipeline.persistence.ledger.claims import Claimed, HandOn, Return, claim_cases, count_cases_of, give_back, hand_on
from pipeline.persistence.waiting_line import LineView, Waiting
from pipeline.stages.infer import BatchMember, BatchResult, Firing, infer
from workers.doorbell import ring
from workers.isolation import apart, given_up_after, send_back
from workers.served_models import ServedModel, ServedModels, own_cases
from workers.shadow import Shadow
from workers.stage_task import PoolRuntime, StageClock, end_with_failure, leave_for_later, put_back, require_time

IDLE_LOOK_S = 1.0
"""How often an idle former looks at the line although nobody rang."""
BUSY_MARGIN_S = 0.05
STUCK_FACTOR = 3.0
"""A run that takes so many times its predicted time, and longer than the setting allows, hangs."""
LAST_WORDS_S = 2.0
"""Longest that a process which gives up takes to return its cases; what it could not return, its leases free."""
HUNG = "model-stood-still"


@dataclass(frozen=True, slots=True)
class Chosen:
    """A decision to fire, with what it was taken on."""

    model: ServedModel
    fire: Fire
    waiting: tuple[Waiting, ...]


class Former:
    """The model thread of one inference process: it owns the device."""

    def __init__(
        self, runtime: PoolRuntime, registry: ModelRegistry, *, on_death: Callable[[], None], shadow: Shadow | None = None
    ) -> None:
        settings = runtime.services.settings
        self._runtime, self._registry, self._on_death, self._shadow = runtime, registry, on_death, shadow
        self._device = settings.device
        self._name = runtime.services.worker
        # The line's moments come from other hosts and from the ledger: all are told by the ledger's clock.
        self._clock = runtime.services.clock
        self._ceilings = Ceilings(settings.batch_images, settings.batch_window_s)
        self._models = ServedModels(registry, self._serve)
        self._awake = threading.Condition()
        self._is_rung = False
        self._is_draining = False
        self._thread = threading.Thread(target=self._live, name="model", daemon=True)

    def _serve(self, reference: str) -> ServedModel:
        line, durations_s = self._runtime.services.line(reference), self._registry.durations_s(reference)
        return ServedModel(reference, line, LatencyModel.from_sweep(durations_s))

    @property
    def lines(self) -> Sequence[ServedModel]:
        """The models that are served now, for whoever listens to their lines."""
        return tuple(self._models)

    @property
    def is_draining(self) -> bool:
        """Whether it fires no more."""
        return self._is_draining

    def start(self) -> None:
        """Begin to form batches."""
        self._thread.start()

    def drain(self) -> None:
        """Fire no more; the batch that runs is finished and handed on."""
        with self._awake:
            self._is_draining = True
            self._awake.notify()

    def join(self, timeout_s: float) -> None:
        """Wait for the last batch of a drain."""
        self._thread.join(timeout_s)

    def wake(self, model: ServedModel | None = None, joined: int = 0) -> None:
        """Say that something changed: cases joined a line, or a ring came."""
        at = self._clock.unix_s() if model is not None else 0.0
        with self._awake:
            if model is not None:
                model.arrivals.saw(joined, at)
            self._is_rung = True
            self._awake.notify()

    def _live(self) -> None:
        try:
            self._work()
        except BaseException as error:
            # A device that answers no more, or a mistake of ours: the leases lapse, and the supervisor starts a new process.
            logger().critical("model_thread_died", exc_info=error)
            self._on_death()
            raise

    def _work(self) -> None:
        while not self._is_draining:
            pause_s = self._turn()
            with self._awake:
                if pause_s > 0:
                    self._awake.wait_for(lambda: self._is_rung or self._is_draining, pause_s)
                self._is_rung = False

    def _turn(self) -> float:
        """Fire once, if the rule says so; return how long to pause."""
        try:
            self._models.follow()
            chosen = self._choose(self._clock.unix_s())
            if self._shadow is not None:
                is_idle = not isinstance(chosen, Chosen) and all(model.held_since is None for model in self._models)
                self._shadow.rest(is_idle)
            if isinstance(chosen, Chosen):
                self._fire(chosen)
                return 0.0
        except Unavailable as error:
            logger().warning("former_waits", code=error.code)
            return 1.0
        return chosen

    def _choose(self, now: float) -> Chosen | float:
        """The batch to fire now, or the seconds until the next look."""
        pause_s = IDLE_LOOK_S
        for model in self._models:
            view = model.line.view(limit=4 * self._ceilings.images, now=now)
            decision = self._decide(model, view, now)
            if isinstance(decision, Fire):
                return Chosen(model, decision, view.waiting[: decision.case_count])
            if isinstance(decision, Hold):
                model.held_since = model.held_since or now
                pause_s = min(pause_s, decision.seconds)
            else:
                model.held_since = None
        return pause_s

    def _decide(self, model: ServedModel, view: LineView, now: float) -> Fire | Hold | None:
        """Ask the rule; where it would fire for want of company, look first whether company is on its way."""
        others = [until - now for device, until in view.busy_until.items() if device != self._name]
        situation = Situation(now, model.held_since, model.arrivals.hazard(now), min(others) if others else None)
        decision = decide(view.waiting, model.latency, self._ceilings, situation)
        if isinstance(decision, Fire) and decision.reason == "stop rule":
            room = self._ceilings.images - decision.image_count
            company = count_cases_of(self._runtime.services.ledger, Pool.INTAKE, limit=room)
            return decide(view.waiting, model.latency, self._ceilings, replace(situation, company=company)) if company else decision
        return decision

    def _fire(self, chosen: Chosen) -> None:
        model, now = chosen.model, self._clock.unix_s()
        taken = model.line.take([case.case_id for case in chosen.waiting])
        try:
            services = self._runtime.services
            cases = own_cases(services, model.reference, chosen.waiting, self._claim(model, chosen.waiting, taken))
            together, others = apart(cases)
            send_back(services, model.line, chosen.waiting, others)
            together = self._in_time(together, chosen.fire.predicted_s)
            if together:
                model.line.say_busy(self._name, now + chosen.fire.predicted_s + BUSY_MARGIN_S)
                with self._runtime.leases.holding([(case.case_id, case.attempt) for case in together]):
                    self._run(chosen, together, now)
                model.line.say_busy(self._name, 0.0)
        finally:
            model.held_since = None

    def _claim(self, model: ServedModel, waiting: Sequence[Waiting], taken: Sequence[UUID]) -> list[Claimed]:
        if not taken:
            return []
        seen_no = max(case.publish_no for case in waiting)
        services = self._runtime.services
        try:
            claimed = claim_cases(services.ledger, taken, pool=Pool.INFERENCE, worker=services.worker, seen_no=seen_no)
        except Unavailable:
            model.line.join([case for case in waiting if case.case_id in taken])
            raise
        if len(claimed) < len(taken):
            metrics.DUPLICATES.labels(INFER.name).inc(len(taken) - len(claimed))
        return claimed

    def _in_time(self, cases: Sequence[Claimed], predicted_s: float) -> list[Claimed]:
        """Those that can still be answered in time; the others are left to the guard."""
        kept = []
        for case in cases:
            with about_case(case.case_id, stage=INFER.name):
                try:
                    require_time(case, predicted_s + least_s_after(Pool.INFERENCE), INFER.name)
                    kept.append(case)
                except ExpiredAtStage as error:
                    leave_for_later(self._runtime, case, error)
        return kept

    def _run(self, chosen: Chosen, cases: Sequence[Claimed], now: float) -> None:
        model, fire = chosen.model, chosen.fire
        firing = Firing(uuid7().hex, fire.reason, self._device, self._clock.now())
        self._show_begun(firing.batch_id, chosen, cases)
        clocks = {case.case_id: StageClock(case.lane) for case in cases}
        for case in cases:
            clocks[case.case_id].enter(INFER.name)
        members = [BatchMember(case.case_id, case.attempt, case.input, case.work) for case in cases]
        image_count = sum(member.image_count for member in members)
        runner = self._registry.runner(model.reference)
        limit_s = max(self._runtime.services.settings.inference_limit_s, STUCK_FACTOR * model.latency.seconds(image_count))
        with given_up_after(limit_s, partial(self._give_up, cases)):
            result = infer(members, firing, runner=runner, tensors=self._runtime.services.tensors)
        self._hand_on(cases, result, clocks)
        if self._shadow is not None:
            self._shadow.offer(cases, result.inferred)
        if not result.failed:
            model.latency.learn(image_count, result.forward_s)
        self._show_ended(firing.batch_id, cases, result, runtime_s=clocks[cases[0].case_id].age_s)
        self._observe(chosen, result, now)

    def _give_up(self, hung: Sequence[Claimed]) -> None:
        """Return what this process has claimed, so that nobody waits for its leases, and end it; in the watching thread."""
        # However long the ledger takes to answer.
        threading.Timer(LAST_WORDS_S, self._on_death).start()
        services = self._runtime.services
        why = Return(CaseState.INFERRING, CaseState.AWAITING_INFERENCE, HUNG, is_strike=True)
        try:
            give_back(services.ledger, [(case.case_id, case.attempt) for case in hung], why, worker=services.worker)
        except Unavailable as error:
            logger().warning("not_put_back", code=error.code)
        finally:
            self._on_death()

    def _hand_on(self, cases: Sequence[Claimed], result: BatchResult, clocks: dict[UUID, StageClock]) -> None:
        services = self._runtime.services
        done = [
            HandOn(case.case_id, case.attempt, {"inferred": inferred.model_dump(mode="json")}, clocks[case.case_id].finish())
            for case in cases
            if (inferred := result.inferred.get(case.case_id))
        ]
        if done:
            moved = hand_on(services.ledger, done, left=CaseState.INFERRING, entered=CaseState.AWAITING_REPORT, worker=services.worker)
            ring(self._runtime.app, Pool.REPORTING, moved)
            metrics.STALE_COMPLETIONS.labels(INFER.name).inc(len(done) - len(moved))
        for case in cases:
            if error := result.failed.get(case.case_id):
                with about_case(case.case_id, stage=INFER.name):
                    if isinstance(error, IdentityMismatch):
                        metrics.IDENTITY_MISMATCHES.labels(INFER.name).inc()
                    if isinstance(error, RejectedInput):
                        end_with_failure(self._runtime, case, error, clocks[case.case_id])
                    elif isinstance(error, Unavailable):
                        put_back(self._runtime, case, error)

    def _show_begun(self, batch_id: str, chosen: Chosen, cases: Sequence[Claimed]) -> None:
        """Show the batch and its cases as tasks; a case was received when it joined the line."""
        fire, events = chosen.fire, self._runtime.events
        ready_at = {place.case_id: place.ready_at for place in chosen.waiting}
        for case in cases:
            events.began(case, Pool.INFERENCE, received_at=ready_at[case.case_id])
        facts = {"n": fire.image_count, "cases": len(cases), "reason": fire.reason, "predicted_ms": round(fire.predicted_s * 1000)}
        events.batch_began(batch_id, {"model": chosen.model.reference, **facts})

    def _show_ended(self, batch_id: str, cases: Sequence[Claimed], result: BatchResult, *, runtime_s: float) -> None:
        events = self._runtime.events
        for case in cases:
            error = result.failed.get(case.case_id)
            events.ended(case, Pool.INFERENCE, runtime_s=runtime_s, code=error.code if error else None)
        events.batch_ended(batch_id, {"actual_ms": round(result.forward_s * 1000), "failed": len(result.failed)}, runtime_s=runtime_s)

    def _observe(self, chosen: Chosen, result: BatchResult, now: float) -> None:
        reference, fire = chosen.model.reference, chosen.fire
        held_s = now - chosen.model.held_since if chosen.model.held_since else 0.0
        metrics.BATCH_IMAGES.labels(reference).observe(fire.image_count)
        metrics.BATCH_HOLD_SECONDS.labels(reference).observe(held_s)
        metrics.BATCHES_FIRED.labels(reference, fire.reason).inc()
        metrics.FORWARD_SECONDS.labels(self._device).observe(result.forward_s)
        logger().info(
            "batch_fired",
            model=reference,
            reason=fire.reason,
            images=fire.image_count,
            ceiling=self._ceilings.images,
            held_ms=round(held_s * 1000),
            predicted_ms=round(fire.predicted_s * 1000),
            actual_ms=round(result.forward_s * 1000),
            slack_ms=round(fire.slack_s * 1000),
            forward_passes=result.forward_passes,
        )
