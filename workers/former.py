"""Forms batches: watches the waiting line, asks the rule, takes the members as it fires, runs the model.

Nothing waits in this process but the batch that it runs, so a crash loses a lease and a drain loses nothing.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from uuid import UUID

from uuid6 import uuid7

from pipeline.batching.latency import LatencyModel
from pipeline.batching.memory_cap import MemoryCap
from pipeline.batching.rule import Ceilings, Fire
from pipeline.errors import ExpiredAtStage, Unavailable
from pipeline.flow import INFER, Pool, least_s_after
from pipeline.inference.failures import DeviceLost
from pipeline.inference.registry import ModelRegistry
from pipeline.observability import metrics
from pipeline.observability.log import about_case, logger
from pipeline.persistence.ledger.claims import Claimed, claim_cases
from pipeline.persistence.waiting_line import Waiting
from pipeline.stages.infer import BatchMember, Firing, infer
from workers.batch_run import clocks_for, hand_results_on, learn
from workers.firing_report import FiredBatch, observe, show_begun, show_ended
from workers.hand_over import HandOver
from workers.isolation import HUNG, Suspects, apart, given_up_after, lost_with, return_all, send_back
from workers.prefetch import Prefetch
from workers.served import Chosen, ServedModel, choose
from workers.served_models import ServedModels, own_cases
from workers.shadow import Shadow
from workers.stage_task import PoolRuntime, leave_for_later, require_time

BUSY_MARGIN_S = 0.05
STUCK_FACTOR = 3.0
"""A run that takes so many times its predicted time, and longer than the setting allows, hangs."""


class Former:
    """The model thread of one inference process: it owns the device."""

    def __init__(
        self,
        runtime: PoolRuntime,
        registry: ModelRegistry,
        *,
        on_death: Callable[[], None],
        on_device_lost: Callable[[], None] | None = None,
        shadow: Shadow | None = None,
    ) -> None:
        settings = runtime.services.settings
        self._runtime, self._registry, self._on_death, self._shadow = runtime, registry, on_death, shadow
        self._on_device_lost = on_device_lost or on_death
        self._device = settings.device
        self._name = runtime.services.worker
        # The line's moments come from other hosts and from the ledger: all are told by the ledger's clock.
        self._clock = runtime.services.clock
        self._ceilings = Ceilings(settings.batch_images, settings.batch_window_s)
        self._models = ServedModels(registry, self._serve)
        self._suspects, self._prefetch = Suspects(), Prefetch(runtime.services)
        self._hand_over = HandOver(on_death=on_death)
        self._awake = threading.Condition()
        self._is_rung = False
        self._is_draining = False
        self._thread = threading.Thread(target=self._live, name="model", daemon=True)

    def _serve(self, reference: str) -> ServedModel:
        line, durations_s = self._runtime.services.line(reference), self._registry.durations_s(reference)
        return ServedModel(reference, line, LatencyModel.from_sweep(durations_s), MemoryCap.from_sweep(durations_s))

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

    def settle(self) -> None:
        """Wait until the batch that ran last is handed on; in the model thread, or where there is none."""
        self._hand_over.finish()

    def join(self, timeout_s: float) -> None:
        """Wait for the last batch of a drain."""
        self._thread.join(timeout_s)

    def wake(self, model: ServedModel | None = None, joined: int = 0) -> None:
        """Say that something changed: cases joined a line, or a ring came."""
        at = self._clock.unix_s() if model is not None else 0.0
        with self._awake:
            if model is not None:
                model.feeder.arrivals.saw(joined, at)
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
        self._pass_on_all()
        self.settle()

    def _turn(self) -> float:
        """Fire once, if the rule says so; return how long to pause."""
        services = self._runtime.services
        try:
            self._models.follow()
            chosen = choose(services, tuple(self._models), self._ceilings, device=self._name, now=self._clock.unix_s())
            if self._shadow is not None:
                self._shadow.rest(not isinstance(chosen, Chosen) and all(model.feeder.held_since is None for model in self._models))
            if isinstance(chosen, Chosen):
                self._act_on(chosen)
                return 0.0
        except Unavailable as error:
            logger().warning("former_waits", code=error.code)
            return 1.0
        return chosen

    def _act_on(self, chosen: Chosen) -> None:
        """Take whom the rule named, if it is still this one's turn; run those aboard and let go of those that are late."""
        model, fire, now = chosen.model, chosen.decision, self._clock.unix_s()
        busy_until = now + fire.predicted_s + BUSY_MARGIN_S if isinstance(fire, Fire) else None
        named = self._suspects.aboard((*chosen.aboard, *chosen.late))
        taken = model.line.take(self._name, [case.case_id for case in named], busy_until=busy_until)
        if not taken:
            return
        self._pass_on_others(model, busy_until)
        try:
            services = self._runtime.services
            claimed = own_cases(services, model.reference, named, self._claim(model, named, taken))
            self._suspects.meet(claimed)
            cases = self._let_go(chosen, claimed)
            together, others = apart(cases)
            send_back(services, model.line, named, others)
            if isinstance(fire, Fire) and (together := self._in_time(together, fire.predicted_s)):
                self._run(chosen, fire, together)
        finally:
            model.feeder.held_since = None

    def _pass_on_others(self, model: ServedModel, busy_until: float | None) -> None:
        """Leave the other lines to other formers while this device is busy with one."""
        for other in self._models:
            if other is not model:
                other.line.pass_on(self._name)
                if busy_until is not None:
                    other.line.say_busy(self._name, busy_until)

    def _pass_on_all(self) -> None:
        try:
            for model in self._models:
                model.line.pass_on(self._name)
        except Unavailable as error:
            # The turns are over in a moment all the same.
            logger().warning("turn_not_passed_on", code=error.code)

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

    def _let_go(self, chosen: Chosen, cases: Sequence[Claimed]) -> list[Claimed]:
        """Let go of the claimed cases that no batch can answer in time; return the others."""
        late = {place.case_id for place in chosen.late}
        for case in cases:
            if case.case_id in late:
                metrics.EXPIRED_AT_STAGE.labels(INFER.name).inc()
                metrics.DIVERTED.labels(chosen.model.line.name, case.lane.value).inc()
                with about_case(case.case_id, stage=INFER.name):
                    error = ExpiredAtStage("no batch that starts now is in time", left_s=round(case.left_s, 2))
                    leave_for_later(self._runtime, case, error)
        return [case for case in cases if case.case_id not in late]

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

    def _run(self, chosen: Chosen, fire: Fire, cases: Sequence[Claimed]) -> None:
        model = chosen.model
        firing = Firing(uuid7().hex, fire.reason, self._device, self._clock.now())
        batch = FiredBatch(firing, model.reference, model.line.name, fire, chosen.waiting, chosen.held_s)
        show_begun(self._runtime, batch, cases)
        clocks = clocks_for(cases)
        members = [BatchMember(case.case_id, case.attempt, case.input, case.work) for case in cases]
        runner = self._registry.runner(model.reference)
        ahead = self._prefetch.taken(model.reference)
        with ExitStack() as until_run:
            until_run.enter_context(self._runtime.leases.holding([(case.case_id, case.attempt) for case in cases]))
            with self._within_limit(model, cases, members), self._prefetch.beside(model.line, runner, images=fire.ceiling):
                result = infer(members, firing, runner=runner, tensors=self._runtime.services.tensors, ahead=ahead)
            learn(result, latency=model.latency, cap=model.cap)
            until_handed_on = until_run.pop_all()

        def hand_on() -> None:
            with until_handed_on:
                hand_results_on(self._runtime, cases, result, clocks)
            if self._shadow is not None:
                self._shadow.offer(cases, result.inferred)
            show_ended(self._runtime, batch, cases, result, runtime_s=clocks[cases[0].case_id].age_s)
            observe(batch, cases, result, cap=model.cap)

        self._hand_over.give(hand_on)

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
