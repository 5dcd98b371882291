"""What a batch costs: L(b) = alpha + beta b, seeded by the warm-up and corrected by every run."""

from collections.abc import Mapping
from dataclasses import dataclass, field

LEVEL_WEIGHT = 0.2
"""How fast the level follows a device that got slower or faster."""


@dataclass(slots=True)
class LatencyModel:
    """Seconds that a forward pass of b images takes on one device."""

    alpha_s: float
    beta_s: float
    level: float = field(default=1.0)
    """Recent actual / predicted."""
    spread: float = field(default=0.1)
    """Recent mean deviation of that ratio."""

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

    def learn(self, images: int, actual_s: float) -> None:
        """Follow a run that succeeded; failed runs are no samples."""
        base = self.alpha_s + self.beta_s * images
        if base <= 0:
            return
        ratio = actual_s / base
        self.spread += LEVEL_WEIGHT * (abs(ratio - self.level) / max(self.level, 1e-9) - self.spread)
        self.level += LEVEL_WEIGHT * (ratio - self.level)
