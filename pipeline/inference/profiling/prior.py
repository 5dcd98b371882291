"""What an inference process that starts takes from the performance card of an earlier measurement."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
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

    def warm_up(self, sizes: tuple[int, ...] = WARM_UP_SIZES) -> dict[int, float]:
        """Run every size once untimed and once timed."""


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


def warmed(runner: WarmRunner, known: Mapping[int, float] | None) -> dict[int, float]:
    """Run every batch size at least once, so that none is cold when the process says that it is ready; return L(b).

    With a card that reaches from 1 to the largest size, the smallest and the largest batch are timed, to see whether the
    device still lives up to it, and the others run once. Where it does not, or without a card, every size is timed.

    Raises
    ------
    BadOutput, OutOfDeviceMemory, ModelFailed
        As `ModelRunner.run`.
    """
    smallest, *others, largest = WARM_UP_SIZES
    if known is None or not {smallest, largest} <= known.keys():
        return dict(runner.warm_up())
    checked = runner.warm_up((smallest, largest))
    ratios = {size: checked[size] / known[size] for size in checked}
    if any(not 1 / BELIEVED_WITHIN <= ratio <= BELIEVED_WITHIN for ratio in ratios.values()):
        log.warning("performance_card_not_believed", model=runner.card.reference, ratios={size: round(r, 2) for size, r in ratios.items()})
        return dict(runner.warm_up())
    stated = runner.card.input
    blank = np.zeros((max(others), stated.channels, stated.side_px, stated.side_px), np.uint8)
    for size in others:
        runner.run(blank[:size])
    log.info("performance_card_used", model=runner.card.reference)
    return dict(known)
