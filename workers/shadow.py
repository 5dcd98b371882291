"""A version on trial: it reads what another has answered, on idle capacity alone, and what it says is compared and kept from everybody.

A thread of low priority, one case at a time, and only while the model thread has nothing to fire. What it cannot take
is skipped and counted: nothing waits for it.
"""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np

from pipeline.errors import SecondreadError
from pipeline.inference.agreement import Agreement, Reading, compare
from pipeline.inference.registry import ModelRegistry
from pipeline.observability import metrics
from pipeline.observability.log import about_case, logger
from pipeline.persistence.ledger.claims import Claimed
from pipeline.tensors.store import AnyArray, TensorStore
from schemas.work import InferredCase
from workers.background import yield_to_all

MOST_WAITING = 8
"""Cases whose input is kept until there is time for them."""


STOP_S = 2.0
"""Longest that a stop waits for the case that is being read."""


@dataclass(frozen=True, slots=True)
class Offered:
    """A case that was answered, and what its answer was made of."""

    case_id: UUID
    values: AnyArray
    """(image, channel, row, column), as the answering version was shown it."""
    answer: Reading


class Shadow:
    """Runs the shadow versions of one inference process."""

    def __init__(self, registry: ModelRegistry, tensors: TensorStore) -> None:
        self._registry, self._tensors = registry, tensors
        self._shadows: Mapping[str, str] = {}
        self._waiting: deque[tuple[str, Offered]] = deque()
        self._changed = threading.Condition()
        self._is_idle = False
        self._is_open = True
        self._thread = threading.Thread(target=self._live, name="shadow", daemon=True)

    def start(self) -> None:
        """Begin to read beside the answers."""
        self._thread.start()

    def close(self) -> None:
        """Read no more; what runs is finished."""
        with self._changed:
            self._is_open = False
            self._changed.notify()
        self._thread.join(STOP_S)

    def follow(self, shadows: Mapping[str, str]) -> None:
        """Say which version shadows which: both as `name:version`, by the one that answers."""
        self._shadows = shadows

    def rest(self, is_idle: bool) -> None:
        """The model thread says whether it has nothing to fire; between two calls nothing changes."""
        if is_idle != self._is_idle:
            with self._changed:
                self._is_idle = is_idle
                self._changed.notify()

    def offer(self, cases: Sequence[Claimed], inferred: Mapping[UUID, InferredCase]) -> None:
        """Take cases that were answered and handed on, as far as there is room; their answer does not wait for this."""
        for case in cases:
            answer = inferred.get(case.case_id)
            shadow = self._shadows.get(answer.model) if answer else None
            if shadow is None or answer is None:
                continue
            offered = self._read(case, answer) if len(self._waiting) < MOST_WAITING else None
            if offered is None:
                metrics.SHADOW_SKIPPED.labels(shadow).inc()
                continue
            with self._changed:
                self._waiting.append((shadow, offered))
                self._changed.notify()

    def _read(self, case: Claimed, answer: InferredCase) -> Offered | None:
        """Copy what both versions are to be compared on; None where reporting was quicker and has freed it."""
        prepared = case.work.prepared
        if prepared is None or prepared.model_input is None:
            return None
        try:
            values = np.array(self._tensors.get(prepared.model_input, case_id=case.case_id))
            probability = np.array(self._tensors.get(answer.probability, case_id=case.case_id))
            card = self._registry.runner(answer.model).card
        except SecondreadError:
            return None
        return Offered(case.case_id, values, Reading(card, probability, np.array(answer.scores, np.float32)))

    def _live(self) -> None:
        yield_to_all()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._is_open or (self._is_idle and self._waiting))
                if not self._is_open:
                    return
                shadow, offered = self._waiting.popleft()
            with about_case(offered.case_id):
                self._compare(shadow, offered)

    def _compare(self, shadow: str, offered: Offered) -> None:
        try:
            runner = self._registry.runner(shadow)
            output = runner.run(offered.values)
        except SecondreadError as error:
            metrics.SHADOW_COMPARED.labels(shadow, "failed").inc()
            logger().warning("shadow_failed", model=shadow, code=error.code)
            return
        agreement = compare(offered.answer, Reading(runner.card, output.probability, output.scores))
        _note(shadow, offered.answer.card.reference, agreement)


def _note(shadow: str, answered: str, agreement: Agreement) -> None:
    metrics.SHADOW_COMPARED.labels(shadow, "alike" if agreement.decides_alike else "differs").inc()
    metrics.SHADOW_DICE.labels(shadow).observe(agreement.dice)
    metrics.SHADOW_SCORE_GAP.labels(shadow).observe(agreement.score_gap)
    logger().info(
        "shadow_compared",
        model=shadow,
        answered_by=answered,
        decides_alike=agreement.decides_alike,
        dice=round(agreement.dice, 4),
        score_gap=round(agreement.score_gap, 4),
    )
