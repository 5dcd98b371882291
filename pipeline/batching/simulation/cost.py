"""What a simulated device costs: a line with noise, and the two things that happen to devices."""

import random
from dataclasses import dataclass

LIMIT = 16
"""Most images in a batch, for every rule."""


@dataclass(frozen=True, slots=True)
class Spell:
    """A stretch of the day in which something is different."""

    begins_s: float
    ends_s: float
    value: float

    def covers(self, at_s: float) -> bool:
        """Whether a moment lies in it."""
        return self.begins_s <= at_s < self.ends_s


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of a batch: (alpha + beta b) x a draw from 1 - noise to 1 + noise, even."""

    single_s: float
    """One image."""
    full_factor: float = 1.4
    """A full batch takes so many times as long as one image."""
    noise: float = 0.2
    slow: Spell | None = None
    """Devices take `value` times as long."""
    short_of_memory: Spell | None = None
    """Only `value` images fit; a batch of more breaks when `BREAKS_AFTER` of its time is over."""

    @property
    def beta_s(self) -> float:
        """What an image adds."""
        return self.single_s * (self.full_factor - 1) / (LIMIT - 1)

    @property
    def alpha_s(self) -> float:
        """What a batch costs before its first image."""
        return self.single_s - self.beta_s

    def mean_s(self, images: int) -> float:
        """Expected seconds of a batch on a healthy device."""
        return self.alpha_s + self.beta_s * images

    def draw_s(self, images: int, dice: random.Random, *, at_s: float = 0.0) -> float:
        """Seconds of one batch that begins at a moment."""
        factor = dice.uniform(1 - self.noise, 1 + self.noise)
        if self.slow is not None and self.slow.covers(at_s):
            factor *= self.slow.value
        return self.mean_s(images) * factor

    def fits(self, images: int, *, at_s: float) -> bool:
        """Whether a batch that begins at a moment has room in the device's memory."""
        short = self.short_of_memory
        return short is None or not short.covers(at_s) or images <= short.value

    def capacity(self, devices: int) -> float:
        """Most images a second that so many devices can read."""
        return devices * LIMIT / self.mean_s(LIMIT)


BREAKS_AFTER = 0.3
