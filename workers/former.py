"""Forms batches: watches the waiting line, asks the rule, takes the members as it fires, runs the model.

Nothing waits in this process but the batch that it runs, so a crash loses a lease and a drain loses nothing.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from uuid import UUID

from uuid6 import uuid7

from pipeline.batching.arrivals import Arrivals
from pipeline.batching.latency import LatencyModel
from pipeline.batching.memory_cap import MemoryCap
from pipeline.batching.rule import Ceilings, Fire, Hold, Situation, decide
from pipeline.errors import ExpiredAtStage, Unavailable
from pipeline.flow import INFER, Pool, least_s_after
from pipeline.inference.failures import DeviceLost
from pipeline.inference.registry import ModelRegistry
from pipeline.observability import metrics
from pipeline.observability.log import about_case, logger
from pipeline.persistence.ledger.claims import Claimed, claim_cases, count_cases_of
from pipeline.persistence.waiting_line import LineView, Waiting, WaitingLine
from pipeline.stages.infer import BatchMember, Firing, infer
from workers.batch_run import FiredBatch, clocks_for, hand_results_on, learn, observe, show_begun, show_ended
from workers.isolation import HUNG, Suspects, apart, given_up_after, lost_with, return_all, send_back
from workers.prefetch import Prefetch
from workers.stage_task import PoolRuntime, leave_for_later, require_time

IDLE_LOOK_S = 1.0
"""How often an idle former looks at the line although nobody rang."""
BUSY_MARGIN_S = 0.05
STUCK_FACTOR = 3.0
"""A run that takes so many times its predicted time, and longer than the setting allows, hangs."""


@dataclass(slots=True)
class ServedModel:
    """One model's line and what is known of its cost and its arrivals."""

    reference: str
    line: WaitingLine
    latency: LatencyModel
    cap: MemoryCap
    arrivals: Arrivals = field(default_factory=Arrivals)
    held_since: float | None = None


@dataclass(frozen=True, slots=True)
class Chosen:
    """A decision to fire, with what it was taken on."""

    model: ServedModel
    fire: Fire
    waiting: tuple[Waiting, ...]


class Former:
    """The model thread of one inference process: it owns the device."""

    def __init__(
        self,
        runtime: PoolRuntime,
        registry: ModelRegistry,
        *,
        on_death: Callable[[], None],
        on_device_lost: Callable[[], None] | None = None,
    ) -> None:
        settings = runtime.services.settings
        self._runtime, self._registry, self._on_death = runtime, registry, on_death
        self._on_device_lost = on_device_lost or on_death
        self._device = settings.device
        self._name = runtime.services.worker
        # The line's moments come from other hosts and from the ledger: all are told by the ledger's clock.
        self._clock = runtime.services.clock
        self._ceilings = Ceilings(settings.batch_images, settings.batch_window_s)
        self._models = [
            ServedModel(
                reference,
                runtime.services.line(reference),
                LatencyModel.from_sweep(registry.durations_s(reference)),
                MemoryCap.from_sweep(registry.durations_s(reference)),
            )
            for reference in registry.served
        ]
        self._suspects, self._prefetch = Suspects(), Prefetch(runtime.services)
        self._awake = threading.Condition()
        self._is_rung = False
        self._is_draining = False
        self._thread = threading.Thread(target=self._live, name="model", daemon=True)

    @property
    def lines(self) -> Sequence[ServedModel]:
        """The served models, for whoever listens to their lines."""
        return self._models

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
            die = self._on_device_lost if isinstance(error, DeviceLost) else self._on_death
            die()
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
            chosen = self._choose(self._clock.unix_s())
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
        ceilings = self._ceilings_of(model)
        decision = decide(view.waiting, model.latency, ceilings, situation)
        if isinstance(decision, Fire) and decision.reason == "stop rule":
            room = ceilings.images - decision.image_count
            company = count_cases_of(self._runtime.services.ledger, Pool.INTAKE, limit=room)
            return decide(view.waiting, model.latency, ceilings, replace(situation, company=company)) if company else decision
        return decision

    def _ceilings_of(self, model: ServedModel) -> Ceilings:
        """The configured ceilings, and what the device's memory was found to hold."""
        return replace(self._ceilings, images=min(self._ceilings.images, model.cap.images))

    def _fire(self, chosen: Chosen) -> None:
        model, now = chosen.model, self._clock.unix_s()
        taken = model.line.take([case.case_id for case in self._suspects.aboard(chosen.waiting)])
        try:
            cases = self._claim(model, chosen.waiting, taken)
            self._suspects.meet(cases)
            together, others = apart(cases)
            send_back(self._runtime.services, model.line, chosen.waiting, others)
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
        ceiling, held_s = self._ceilings_of(model).images, now - model.held_since if model.held_since else 0.0
        batch = FiredBatch(firing, model.reference, fire, chosen.waiting, ceiling, held_s)
        show_begun(self._runtime, batch, cases)
        clocks = clocks_for(cases)
        members = [BatchMember(case.case_id, case.attempt, case.input, case.work) for case in cases]
        runner = self._registry.runner(model.reference)
        ahead = self._prefetch.taken(model.reference)
        with self._within_limit(model, cases, members), self._prefetch.beside(model.line, runner, images=ceiling):
            result = infer(members, firing, runner=runner, tensors=self._runtime.services.tensors, ahead=ahead)
        hand_results_on(self._runtime, cases, result, clocks)
        learn(result, latency=model.latency, cap=model.cap)
        show_ended(self._runtime, batch, cases, result, runtime_s=clocks[cases[0].case_id].age_s)
        observe(batch, result, cap=model.cap)

    @contextmanager
    def _within_limit(self, model: ServedModel, cases: Sequence[Claimed], members: Sequence[BatchMember]) -> Iterator[None]:
        """End the process, its cases given back, where a run hangs or loses the device."""
        predicted_s = model.latency.seconds(sum(member.image_count for member in members))
        limit_s = max(self._runtime.services.settings.inference_limit_s, STUCK_FACTOR * predicted_s)
        give_up = partial(return_all, self._runtime.services, cases)
        try:
            with given_up_after(limit_s, partial(give_up, HUNG, die=self._on_death)):
                yield
        except DeviceLost as error:
            logger().critical("device_lost", device=self._device, exc_info=error)
            give_up(lost_with(cases), die=self._on_device_lost)
            raise
