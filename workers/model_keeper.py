"""Which versions an inference process has in memory: what the plans name is loaded beside the running work, what nobody wants is let go."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pipeline.cases.serving import DEFAULT, ServingPlan, name_of, reference_of
from pipeline.errors import LedgerUnavailable, SecondreadError, Unavailable
from pipeline.inference.card import newest_first
from pipeline.inference.registry import ModelRegistry
from pipeline.observability.log import logger
from pipeline.persistence.ledger.models import ModelReport, live_reports, models_wanted, read_plans, record_act, say_loaded
from workers.background import yield_to_all
from workers.shadow import Shadow
from workers.wiring import Services

ROUND_S: Final = 1.0
REPORT_EVERY_S: Final = 5.0
LINGER_S: Final = 15.0
"""How long a version stays after the last plan that names it: longer than a plan is remembered, and a case is prepared."""
STOP_S: Final = 2.0
"""Longest that a stop waits for this thread: a load that is under way is left where it stands."""
WANTED_EVERY_S: Final = 5.0
"""How often the ledger is asked for cases that were prepared for a version that is not loaded."""


class ModelKeeper:
    """Keeps the registry of one inference process as the ledger's plans want it, in a thread of low priority.

    A version that is refused is refused once for each act that names it, and named in the log, the metrics and the ledger;
    whatever serves goes on.
    """

    def __init__(
        self,
        services: Services,
        registry: ModelRegistry,
        shadow: Shadow,
        *,
        on_death: Callable[[], None],
        linger_s: float = LINGER_S,
    ) -> None:
        self._services, self._registry, self._shadow = services, registry, shadow
        self._on_death, self._linger_s = on_death, linger_s
        self._plans: Mapping[str, ServingPlan] = {}
        self._named_at: dict[str, float] = {}
        self._refused: dict[str, tuple[int, SecondreadError]] = {}
        self._loading: str | None = None
        self._reported: tuple[Sequence[ModelReport], float] = ((), float("-inf"))
        self._wanted_at = float("-inf")
        self._are_defaults_noted = False
        self._retired: list[str] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._live, name="models", daemon=True)

    def begin(self) -> None:
        """Load what is to serve from the start: what the plans and the open cases name; without a plan the newest version that passes.

        Raises
        ------
        BadModelFolder
            The models folder cannot be read.
        """
        try:
            self._plans = read_plans(self._services.ledger)
            wanted = models_wanted(self._services.ledger)
        except LedgerUnavailable as error:
            logger().warning("serving_plans_not_read", code=error.code)
            wanted = set()
        for name in sorted({card.name for card, _ in self._services.cards.values()}):
            self._begin_model(name)
        for reference in sorted(wanted & set(self._services.cards)):
            self._registry.admit(reference)

    def _begin_model(self, name: str) -> None:
        plan = self._plans.get(name)
        if plan is not None and plan.act != DEFAULT:
            for reference in plan.references:
                self._admit(reference, plan.number, in_background=False)
        if plan is not None and plan.serving is None:
            return
        versions = newest_first(card.version for card, _ in self._services.cards.values() if card.name == name)
        for version in versions:
            if self._served_of(name):
                return
            self._admit(reference_of(name, version), plan.number if plan else 0, in_background=False)

    def start(self) -> None:
        """Follow the plans from now on."""
        self._thread.start()

    def close(self) -> None:
        """Follow no more, and say that this process serves nothing any more."""
        self._is_over.set()
        self._thread.join(STOP_S)
        try:
            say_loaded(self._services.ledger, self._services.worker, ())
        except Unavailable as error:
            logger().warning("models_not_withdrawn", code=error.code)

    def _live(self) -> None:
        yield_to_all()
        try:
            while not self._is_over.wait(ROUND_S):
                try:
                    self.round()
                except SecondreadError as error:
                    logger().warning("models_not_followed", code=error.code)
        except BaseException as error:
            # A device that answers no more, or a mistake of ours: the supervisor starts a new process.
            logger().critical("model_keeper_died", exc_info=error)
            self._on_death()
            raise

    def round(self) -> None:
        """Follow the plans once.

        Raises
        ------
        Unavailable
            The ledger or a line is away; the next round tries again.
        BadModelFolder
            The models folder cannot be read.
        """
        self._plans = read_plans(self._services.ledger)
        if not self._are_defaults_noted:
            self._note_defaults()
        now = time.monotonic()
        for plan in self._plans.values():
            for reference in plan.references:
                self._named_at[reference] = now
                if self._is_to_load(reference, plan):
                    self._admit(reference, plan.number, in_background=True)
        self._shadow.follow(_shadows(self._plans))
        self._load_for_cases()
        self._let_go(now)
        self._report()

    def _is_to_load(self, reference: str, plan: ServingPlan) -> bool:
        number, _ = self._refused.get(reference, (-1, None))
        return reference not in self._registry.served and number != plan.number

    def _admit(self, reference: str, number: int, *, in_background: bool) -> None:
        begun_s, begun_cpu_s, self._loading = time.monotonic(), time.thread_time(), reference
        try:
            if in_background:
                self._report()
            error = self._registry.admit(reference, in_background=in_background)
        finally:
            self._loading = None
        if error is not None:
            self._refused[reference] = (number, error)
            return
        self._refused.pop(reference, None)
        self._named_at[reference] = time.monotonic()
        took_s, cpu_s = time.monotonic() - begun_s, time.thread_time() - begun_cpu_s
        logger().info("model_loaded", model=reference, seconds=round(took_s, 3), cpu_s=round(cpu_s, 3))

    def _note_defaults(self) -> None:
        """Where no operator has ever acted: note that the newest version that passed here serves, so that no later folder does."""
        for name in sorted({name_of(reference) for reference in self._registry.served}):
            plan = self._plans.get(name)
            newest = newest_first(_split(reference)[1] for reference in self._served_of(name))[0]
            if plan is None or (plan.act == DEFAULT and self._is_default_outdated(plan, newest)):
                noted = ServingPlan(name, plan.number + 1 if plan else 1, DEFAULT, newest, before=plan.serving if plan else None)
                record_act(self._services.ledger, noted, actor=self._services.worker)
        self._plans = read_plans(self._services.ledger)
        self._are_defaults_noted = True

    def _is_default_outdated(self, plan: ServingPlan, newest: str) -> bool:
        """Whether the newest version here is newer than the noted one, or nobody has that one any more."""
        if plan.serving is None or newest_first((plan.serving, newest))[0] == newest:
            return plan.serving != newest
        noted = reference_of(plan.name, plan.serving)
        return not any(report.reference == noted and report.state == "loaded" for report in live_reports(self._services.ledger))

    def _served_of(self, name: str) -> list[str]:
        return [reference for reference in self._registry.served if name_of(reference) == name]

    def _load_for_cases(self) -> None:
        """Load a version that open cases were prepared for, whatever the plans say: it answers them, and goes."""
        if time.monotonic() - self._wanted_at < WANTED_EVERY_S:
            return
        self._wanted_at = time.monotonic()
        for reference in models_wanted(self._services.ledger):
            self._named_at[reference] = self._wanted_at
            if reference not in self._registry.served and reference not in self._refused and reference in self._services.cards:
                self._admit(reference, 0, in_background=True)

    def _let_go(self, now: float) -> None:
        """Let go of versions that no plan has named for a while, whose line is empty and that no open case was prepared for.

        In two rounds: the model thread first leaves the line, so that it claims nothing that it then cannot run.
        """
        for reference in self._retired:
            # Named again since, it serves again.
            if reference not in self._registry.served:
                self._registry.drop(reference)
                logger().info("model_unloaded", model=reference)
        self._retired = []
        named = {reference for plan in self._plans.values() for reference in plan.references}
        spare = [each for each in self._registry.served if each not in named and self._is_forgotten(each, now)]
        wanted = models_wanted(self._services.ledger) if spare else set()
        for reference in spare:
            if reference not in wanted and len(self._served_of(name_of(reference))) > 1:
                self._registry.retire(reference)
                self._retired.append(reference)

    def _is_forgotten(self, reference: str, now: float) -> bool:
        return now - self._named_at.setdefault(reference, now) >= self._linger_s and self._is_line_empty(reference)

    def _is_line_empty(self, reference: str) -> bool:
        return reference in self._services.cards and self._services.line(reference).length() == 0

    def _report(self) -> None:
        """Say what is loaded here, when it changes and every few seconds."""
        said, said_at = self._reported
        reports = self._reports()
        if reports != said or time.monotonic() - said_at >= REPORT_EVERY_S:
            say_loaded(self._services.ledger, self._services.worker, reports)
            self._reported = (reports, time.monotonic())

    def _reports(self) -> list[ModelReport]:
        worker = self._services.worker
        reports = {
            reference: ModelReport(worker, *_split(reference), "refused", number, code=error.code, reason=str(error))
            for reference, (number, error) in self._refused.items()
        }
        for reference in self._registry.served:
            durations_s = self._registry.durations_s(reference)
            sizes = sorted(durations_s)
            reports[reference] = ModelReport(
                worker,
                *_split(reference),
                "loaded",
                digest=self._registry.runner(reference).card.weights_sha256,
                one_s=durations_s[sizes[0]],
                most_s=durations_s[sizes[-1]],
            )
        if self._loading is not None:
            reports[self._loading] = ModelReport(worker, *_split(self._loading), "loading")
        return list(reports.values())


def _split(reference: str) -> tuple[str, str]:
    name, _, version = reference.partition(":")
    return name, version


def _shadows(plans: Mapping[str, ServingPlan]) -> dict[str, str]:
    return {
        reference_of(plan.name, plan.serving): reference_of(plan.name, plan.shadow)
        for plan in plans.values()
        if plan.serving is not None and plan.shadow is not None
    }
