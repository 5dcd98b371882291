"""A device that only takes time: the product's inference process with a network that sleeps by a cost model.

`python -m tests.load.sleeping` is `python -m workers.inference` with one more network to choose from. Everything else is the
product's: model folder, digests, registry, warm-up, runner, seals, former, rule, claims, leases.
"""

import os
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from pipeline.inference.networks import NETWORKS
from pipeline.inference.seeded import write_card, write_seeded_model
from schemas.model_card import ModelCard
from workers import inference

NETWORK = "sleeping"
MICROSECONDS = 1_000_000
PER_MILLE = 1_000
NO_LESION = -4.0
"""Logit of "no lesion", everywhere."""


@dataclass(frozen=True, slots=True)
class Cost:
    """A batch of b images takes (alpha + beta b) x U(1 - spread, 1 + spread)."""

    alpha_s: float
    beta_s: float
    spread: float = 0.0

    @classmethod
    def through(cls, one_s: float, sixteen_s: float, *, spread: float = 0.0) -> "Cost":
        """The line through one image and through sixteen."""
        beta_s = (sixteen_s - one_s) / 15
        return cls(one_s - beta_s, beta_s, spread)

    def mean_s(self, images: int) -> float:
        """What a batch takes on average."""
        return self.alpha_s + self.beta_s * images

    def draw_s(self, images: int, chance: random.Random) -> float:
        """What one batch takes."""
        return self.mean_s(images) * chance.uniform(1 - self.spread, 1 + self.spread)


class SleepingNet(nn.Module):
    """Sleeps as long as the cost model says, and outlines nothing.

    Parameters
    ----------
    alpha_us, beta_us, spread_permille
        The cost model: a model card holds whole numbers.
    scores
        How many scores it gives.
    """

    side_multiple_px: ClassVar[int] = 1

    def __init__(self, *, alpha_us: int, beta_us: int, spread_permille: int, scores: int) -> None:
        super().__init__()
        self._cost = Cost(alpha_us / MICROSECONDS, beta_us / MICROSECONDS, spread_permille / PER_MILLE)
        self._score_count = scores
        # Several processes that draw alike would be one device in several places.
        self._chance = random.Random(os.getpid())

    def forward(self, display: Tensor) -> tuple[Tensor, Tensor]:
        """Take the time of a batch; return logits of (image, 1, row, column) and (image, score)."""
        time.sleep(self._cost.draw_s(len(display), self._chance))
        images, _, rows, columns = display.shape
        return torch.full((images, 1, rows, columns), NO_LESION), torch.zeros(images, self._score_count)

    def load_stored(self, weights: Mapping[str, Tensor]) -> None:
        """Take any weights: there is nothing to do with them."""


def write_sleeping_model(folder: Path, cost: Cost, *, side_px: int = 32) -> ModelCard:
    """Write a model folder that the product's registry takes, for a process that knows the network."""
    card = write_seeded_model(folder, seed=1, side_px=side_px, widths=(4, 4, 4, 4))
    arguments: dict[str, int | tuple[int, ...]] = {
        "alpha_us": round(MICROSECONDS * cost.alpha_s),
        "beta_us": round(MICROSECONDS * cost.beta_s),
        "spread_permille": round(PER_MILLE * cost.spread),
    }
    sleeping = card.model_copy(update={"name": NETWORK, "version": "1", "network": NETWORK, "network_arguments": arguments})
    write_card(folder, sleeping)
    return sleeping


def serve() -> None:
    """Run the product's inference pool with this network among those that a card may name."""
    cast(dict[str, Any], NETWORKS)[NETWORK] = SleepingNet
    inference.main()


if __name__ == "__main__":
    serve()
