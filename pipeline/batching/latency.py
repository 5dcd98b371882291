"""What a batch costs: L(b) = alpha + beta b, seeded by the warm-up and corrected by every run.

Two things change in a device's life, and at two speeds. How fast it is as a whole (it is throttled, shared, replaced) is the
level: a few runs tell it. What an image costs beside the launch is the line's shape: least squares over the last fifty runs or so,
each of them divided by the level of its time, beside the line that the warm-up measured, which is never forgotten.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

LEVEL_WEIGHT = 0.2
"""How fast the level follows a device that got slower or faster."""
SPREAD_WEIGHT = 0.03
"""How fast the spread follows: slower, since a spread that jumps would put off cases that could be answered."""
FORGETTING = 0.98
"""What a run counts for the line's shape after the next one."""
PRIOR_SIZES = (1, 16)
PRIOR_RUNS = 2.0
"""The measured line counts as so many runs of each of two sizes, for ever: runs of one size alone say nothing of its slope."""


@dataclass(slots=True)
class _Runs:
    """Sums over runs (size x, seconds y), each with a weight: all that a line of least squares needs."""

    weight: float = 0.0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0

    def fade(self, factor: float) -> None:
        self.weight, self.x, self.y, self.xx, self.xy = (factor * value for value in (self.weight, self.x, self.y, self.xx, self.xy))

    def add(self, size: float, seconds: float, weight: float = 1.0) -> None:
        self.weight += weight
        self.x += weight * size
        self.y += weight * seconds
        self.xx += weight * size * size
        self.xy += weight * size * seconds


@dataclass(slots=True)
class LatencyModel:
    """Seconds that a forward pass of b images takes on one device."""

    alpha_s: float
    beta_s: float
    level: float = field(default=1.0)
    """Recent actual / predicted."""
    spread: float = field(default=0.1)
    """Recent root mean square of its deviation from the level, as a share of it."""
    _prior: _Runs = field(init=False, repr=False, compare=False)
    _seen: _Runs = field(init=False, repr=False, compare=False, default_factory=_Runs)

    def __post_init__(self) -> None:
        self._prior = _Runs()
        for size in PRIOR_SIZES:
            self._prior.add(size, self.alpha_s + self.beta_s * size, PRIOR_RUNS)

    @classmethod
    def from_sweep(cls, seconds_by_size: Mapping[int, float]) -> "LatencyModel":
        """Fit the line to a warm-up sweep by least squares; a single size gives a line through it."""
        sizes, seconds = list(seconds_by_size), list(seconds_by_size.values())
        mean_size, mean_s = sum(sizes) / len(sizes), sum(seconds) / len(seconds)
        variance = sum((size - mean_size) ** 2 for size in sizes)
        if variance == 0:
            return cls(alpha_s=0.0, beta_s=mean_s / mean_size)
        slope = sum((size - mean_size) * (value - mean_s) for size, value in zip(sizes, seconds, strict=True)) / variance
        slope = max(slope, 0.0)
        return cls(alpha_s=max(mean_s - slope * mean_size, 0.0), beta_s=slope)

    def seconds(self, images: int) -> float:
        """Predicted duration of a batch."""
        return (self.alpha_s + self.beta_s * images) * self.level

    def at_most_s(self, images: int, *, margin: float) -> float:
        """A duration that a batch seldom exceeds: the predicted one and `margin` spreads."""
        return (self.alpha_s + self.beta_s * images) * self.level * (1 + margin * self.spread)

    def at_most_each_s(self, images: int, *, margin: float) -> list[float]:
        """The same of every size from none to `images`, by size."""
        factor = self.level * (1 + margin * self.spread)
        fixed_s, each_s = self.alpha_s * factor, self.beta_s * factor
        return [fixed_s + each_s * size for size in range(images + 1)]

    def learn(self, images: int, actual_s: float) -> None:
        """Follow a run that succeeded in one pass; failed runs are no samples."""
        base = self.alpha_s + self.beta_s * images
        if base <= 0:
            return
        ratio = actual_s / base
        deviation = min(1.0, abs(ratio / max(self.level, 1e-9) - 1))
        self.spread = math.sqrt((1 - SPREAD_WEIGHT) * self.spread**2 + SPREAD_WEIGHT * deviation**2)
        self.level += LEVEL_WEIGHT * (ratio - self.level)
        self._seen.fade(FORGETTING)
        self._seen.add(images, actual_s / max(self.level, 1e-9))
        self._refit()

    def _refit(self) -> None:
        """The line of least squares through what was seen and what was measured first; neither end below zero."""
        one, other = self._prior, self._seen
        weight, x, y = one.weight + other.weight, one.x + other.x, one.y + other.y
        xx, xy = one.xx + other.xx, one.xy + other.xy
        slope = (weight * xy - x * y) / (weight * xx - x * x)
        if slope < 0:
            self.alpha_s, self.beta_s = y / weight, 0.0
        elif slope * x > y:
            self.alpha_s, self.beta_s = 0.0, xy / xx
        else:
            self.alpha_s, self.beta_s = (y - slope * x) / weight, slope
