"""The cards of a models folder as they come: which version shapes a case's input. Torch stays out of here."""

import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from uuid import UUID

import structlog

from pipeline.cases.serving import ServingPlan, reference_of, version_for
from pipeline.inference.card import BadModelFolder, Cards, find_cards, newest_first, survey
from schemas.model_card import ModelCard

LOOK_EVERY_S: Final = 1.0

log = structlog.get_logger(__name__)


class CardShelf(Mapping[str, tuple[ModelCard, Path]]):
    """Every usable card of a models folder by `name:version`, with its folder.

    Who asks for one that is not known makes it look into the folder again, once a second at most. What was once read stays:
    cases that were prepared with a card are reported with it, though its folder be gone. A version never changes: the card
    that was read first is the version's.

    Raises
    ------
    BadModelFolder
        At the start, where `models_dir` is no readable folder.
    """

    def __init__(self, models_dir: Path, *, look_every_s: float = LOOK_EVERY_S) -> None:
        self._models_dir, self._look_every_s = models_dir, look_every_s
        self._cards = find_cards(models_dir)
        self._looking = threading.Lock()
        self._looked_at = -look_every_s

    def __getitem__(self, reference: str) -> tuple[ModelCard, Path]:
        if reference not in self._cards:
            self.look(reference)
        return self._cards[reference]

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._cards))

    def __len__(self) -> int:
        return len(self._cards)

    def look(self, wanted: str | None = None) -> None:
        """Read the folder again, unless somebody has within the last second."""
        with self._looking:
            now = time.monotonic()
            if now - self._looked_at < self._look_every_s:
                return
            self._looked_at = now
            try:
                # A new mapping: who walks through the old one is not disturbed.
                self._cards = survey(self._models_dir).cards | self._cards
            except BadModelFolder as error:
                log.warning("models_folder_not_read", reason=str(error))
            if wanted is not None and wanted not in self._cards:
                log.warning("model_card_missing", model=wanted)


def cards_for(cards: Cards, plans: Mapping[str, ServingPlan], case_id: UUID) -> Cards:
    """The cards that a case may be prepared with: of each model that serves, the version that answers this case.

    Without any plan these are all cards, and the newest version of each counts. A version whose folder is not here yet is
    stood in for by the one that serves, or by the newest that is here.
    """
    chosen: dict[str, tuple[ModelCard, Path]] = {}
    for plan in plans.values():
        if plan.serving is None:
            continue
        for version in (version_for(plan, case_id) or plan.serving, plan.serving, *_versions_here(cards, plan.name)):
            reference = reference_of(plan.name, version)
            if reference in cards:
                chosen[reference] = cards[reference]
                break
    return chosen or cards


def _versions_here(cards: Cards, name: str) -> Iterator[str]:
    """The versions of a model that are known here, newest first; asked for last, for it reads no folder."""
    yield from newest_first(card.version for card, _ in cards.values() if card.name == name)
