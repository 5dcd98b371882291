"""What an operator does about versions: load one everywhere, then let it answer, or a share of the cases, or nobody.

A version is sent nothing before every inference process has loaded it, warmed it and compared it with its golden set. One
refusal is enough: the act is withdrawn, and what served goes on.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from pipeline.cases.serving import Act, ServingPlan, reference_of
from pipeline.errors import SecondreadError
from pipeline.inference.card import Cards, newest_first
from pipeline.persistence.ledger.engine import Ledger
from pipeline.persistence.ledger.models import ModelReport, live_reports, read_plans, record_act

PATIENCE_S: Final = 300.0
LOOK_EVERY_S: Final = 0.25

Progress = Callable[[str], None]


class VersionUnknown(SecondreadError):
    """No process and no folder knows the model or this version of it."""

    code = "model-unknown"
    title = "There is no such model version"
    advice = "`secondread models list` shows what there is; `secondread models add` brings a folder."


class VersionRefused(SecondreadError):
    """An inference process has tried the version, and it did not pass."""

    code = "model-refused"
    title = "The version did not pass its checks"
    advice = "What served before goes on. `secondread models check` on the folder says more."


class VersionNotLoaded(SecondreadError):
    """Nobody could say in time that the version is loaded everywhere."""

    code = "model-not-loaded"
    title = "The version is not loaded by every inference process"
    advice = "What served before goes on. Look whether the inference processes run, and try again."


class NothingBefore(SecondreadError):
    """A rollback where no other version is known to have answered before."""

    code = "model-nothing-before"
    title = "No version answered before this one"
    advice = "Name the version: secondread models switch NAME VERSION."


class ShadowInputDiffers(SecondreadError):
    """A shadow reads the very input of the version that answers, and the two are not made for the same."""

    code = "shadow-input-differs"
    title = "The version takes another input than the one that answers"
    advice = "Give it a share of the cases instead: --share 0.05."


class SomebodyElseActed(SecondreadError):
    """Another operator has acted on the model meanwhile."""

    code = "model-acted-on"
    title = "Somebody else has acted on this model meanwhile"
    advice = "Look at `secondread models list`, and try again."


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to become of a version."""

    name: str
    version: str
    share: float | None = None
    """Of the cases, for a canary; None: all."""
    is_shadow: bool = False


class Operator:
    """One operator's acts on the models of one ledger."""

    def __init__(self, ledger: Ledger, cards: Cards, *, actor: str, patience_s: float = PATIENCE_S) -> None:
        self._ledger, self._cards, self._actor, self._patience_s = ledger, cards, actor, patience_s

    def switch(self, wish: Wish, progress: Progress) -> ServingPlan:
        """Load a version everywhere and let it do what is wished; return the plan in force.

        Raises
        ------
        VersionUnknown, VersionRefused, VersionNotLoaded, ShadowInputDiffers, SomebodyElseActed
            Nothing has changed.
        """
        plan = self._plan(wish.name)
        if plan.serving is None and (wish.is_shadow or wish.share is not None):
            raise VersionUnknown(f"{wish.name}: no version answers yet that {wish.version} could stand beside", model=wish.name)
        if wish.is_shadow:
            self._require_one_input(plan, wish.version)
        plan = self._loaded(plan, wish.version, progress)
        if wish.is_shadow:
            return self._act(plan, "shadow", shadow=wish.version)
        if wish.share is not None:
            return self._act(plan, "canary", canary=wish.version, share=wish.share)
        before = plan.before if plan.serving == wish.version else plan.serving
        return self._act(plan, "switch", serving=wish.version, before=before, canary=None, share=0.0, shadow=None)

    def rollback(self, name: str, progress: Progress) -> ServingPlan:
        """Withdraw a version on trial; where there is none, let the version answer that did before.

        Raises
        ------
        VersionUnknown, VersionRefused, VersionNotLoaded, NothingBefore, SomebodyElseActed
            Nothing has changed.
        """
        plan = self._plan(name)
        if plan.canary or plan.shadow:
            return self._act(plan, "rollback", canary=None, share=0.0, shadow=None)
        if plan.before is None:
            raise NothingBefore(f"{name}: {plan.serving} is the first that is known to have answered", model=name)
        plan = self._loaded(plan, plan.before, progress)
        return self._act(plan, "rollback", serving=plan.before, before=plan.serving)

    def _plan(self, name: str) -> ServingPlan:
        plan = read_plans(self._ledger).get(name)
        if plan is not None:
            return plan
        if not any(card.name == name for card, _ in self._cards.values()):
            raise VersionUnknown(f"{name}: no model of this name", model=name)
        loaded = [report.version for report in live_reports(self._ledger) if report.name == name and report.state == "loaded"]
        # A model that is new to the house answers nobody until it is loaded.
        return ServingPlan(name, 0, "default", newest_first(loaded)[0] if loaded else None)

    def _act(self, plan: ServingPlan, act: Act, **changes: object) -> ServingPlan:
        following = replace(plan, **{"number": plan.number + 1, "act": act, "candidate": None, **changes})  # type: ignore[arg-type]
        if not record_act(self._ledger, following, actor=self._actor):
            raise SomebodyElseActed(model=plan.name)
        return following

    def _loaded(self, plan: ServingPlan, version: str, progress: Progress) -> ServingPlan:
        """Have every live process load a version; return the plan that names it."""
        reference = reference_of(plan.name, version)
        if reference not in self._cards and not any(each.reference == reference for each in live_reports(self._ledger)):
            raise VersionUnknown(f"{reference}: no folder has a usable card of this version", model=reference)
        plan = self._act(plan, "load", candidate=version)
        try:
            self._wait(reference, plan.number, progress)
        except SecondreadError:
            with suppress(SecondreadError):
                self._act(plan, "refused")
            raise
        return plan

    def _wait(self, reference: str, number: int, progress: Progress) -> None:
        until, said = time.monotonic() + self._patience_s, ""
        while time.monotonic() < until:
            reports = live_reports(self._ledger)
            workers = {report.worker for report in reports}
            about = [report for report in reports if report.reference == reference]
            _raise_refusal([report for report in about if report.state == "refused" and report.act_number == number])
            loaded = {report.worker for report in about if report.state == "loaded"}
            if workers and loaded == workers:
                return
            now = f"{reference}: loaded by {len(loaded)} of {len(workers)} inference processes"
            if now != said:
                progress(now)
                said = now
            threading.Event().wait(LOOK_EVERY_S)
        raise VersionNotLoaded(said or f"{reference}: no inference process runs", model=reference)

    def _require_one_input(self, plan: ServingPlan, version: str) -> None:
        references = [reference_of(plan.name, each) for each in (plan.serving, version) if each is not None]
        inputs = [self._cards[reference][0].input for reference in references if reference in self._cards]
        if len(inputs) == len(references) and inputs[0].model_copy(update={"max_images": inputs[1].max_images}) != inputs[1]:
            raise ShadowInputDiffers(f"{references[1]} and {references[0]} state different inputs", model=references[1])


def _raise_refusal(refusals: list[ModelReport]) -> None:
    if refusals:
        first = refusals[0]
        raise VersionRefused(f"{first.reason} ({first.code}, said by {first.worker})", model=first.reference, fault=first.code)
