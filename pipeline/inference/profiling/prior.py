"""What an inference process that starts takes from the performance card of an earlier measurement."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import structlog
import torch
from pydantic import ValidationError

from pipeline.inference.devices import name_of
from pipeline.inference.profiling.cards import card_file
from pipeline.inference.profiling.sweep import Runner
from pipeline.inference.runner import WARM_UP_SIZES
from schemas.performance_card import PerformanceCard

BELIEVED_WITHIN = 1.5
"""A card is believed as long as no checked batch takes so many times what it says, or so much less."""

log = structlog.get_logger(__name__)


class WarmRunner(Runner, Protocol):
    """What is warmed."""

    def warm_up(self, sizes: Sequence[int] = WARM_UP_SIZES, *, clock: Callable[[], float] = time.perf_counter) -> dict[int, float]:
        """Run every size once untimed and once timed."""


Clock = Callable[[], float]
Known = Callable[[Runner], Mapping[int, float] | None]
"""Gives L(b) of a loaded model from an earlier measurement, or None."""


def nothing_known(_: Runner) -> None:
    """No performance cards here."""
    return


def known_durations(folder: Path, runner: Runner) -> Mapping[int, float] | None:
    """L(b) from the card of this very model, device, thread count and torch; None where there is none that can be read."""
    name, threads = name_of(str(runner.device)), torch.get_num_threads()
    weights, side_px = runner.card.weights_sha256, runner.card.input.side_px
    path = card_file(folder, weights_sha256=weights, bucket=side_px, device_name=name, threads=threads)
    if not path.exists():
        return None
    try:
        card = PerformanceCard.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        log.warning("performance_card_unreadable", card=path.name, kind=type(error).__name__)
        return None
    mine = (runner.card.reference, weights, side_px, name, threads, torch.__version__)
    theirs = (card.model, card.weights_sha256, card.bucket, card.device_name, card.threads, card.torch_version)
    return {batch.images: batch.median_s for batch in card.batches} if mine == theirs else None


@dataclass(frozen=True, slots=True)
class WarmUp:
    """How the models of one process are warmed up."""

    sizes: Sequence[int] = WARM_UP_SIZES
    known: Known = nothing_known
    """Gives the durations of an earlier measurement, which are better than a warm-up's."""

    def durations_s(self, runner: WarmRunner, *, clock: Clock = time.perf_counter) -> dict[int, float]:
        """Warm one model up and return L(b), as `warmed` does."""
        return warmed(runner, self.known(runner), self.sizes, clock=clock)


def warmed(
    runner: WarmRunner, known: Mapping[int, float] | None, sizes: Sequence[int] = WARM_UP_SIZES, *, clock: Clock = time.perf_counter
) -> dict[int, float]:
    """Warm every batch size up, and return L(b): the card's, which many runs gave, where the device still lives up to it.

    It does where the smallest and the largest batch that were warmed up take about what the card says. Else, and without a card
    that reaches so far, L(b) is what the warm-up has seen.

    Raises
    ------
    BadOutput, OutOfDeviceMemory, ModelFailed
        As `ModelRunner.warm_up`.
    """
    seen = runner.warm_up(sizes, clock=clock)
    if known is None or not {min(seen), max(seen)} <= known.keys():
        return seen
    ratios = {size: seen[size] / known[size] for size in (min(seen), max(seen))}
    if any(not 1 / BELIEVED_WITHIN <= ratio <= BELIEVED_WITHIN for ratio in ratios.values()):
        log.warning("performance_card_not_believed", model=runner.card.reference, ratios={size: round(r, 2) for size, r in ratios.items()})
        return seen
    log.info("performance_card_used", model=runner.card.reference)
    return {size: known.get(size, seconds) for size, seconds in seen.items()}
