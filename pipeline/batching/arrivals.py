"""How soon the next case may come: the rate of arrivals, faded by the running silence."""

from dataclasses import dataclass

MEMORY = 8.0
"""Arrivals that the mean gap remembers: short, because cases come in studies."""


@dataclass(slots=True)
class Arrivals:
    """A mean gap between arrivals, with forgetting; told the time of each."""

    gap_s: float | None = None
    last_at: float | None = None

    def saw(self, count: int, at: float) -> None:
        """Note that `count` cases arrived at one moment."""
        if count <= 0:
            return
        if self.last_at is not None:
            gap = max(at - self.last_at, 0.0) / count
            weight = min(1.0, count / MEMORY)
            self.gap_s = gap if self.gap_s is None else self.gap_s + weight * (gap - self.gap_s)
        self.last_at = at

    def hazard(self, now: float) -> float:
        """Expected arrivals a second now; 0 before two arrivals were seen.

        The silence since the last arrival counts as a gap that is not over: once it is longer than the mean gap, the
        burst has probably ended and the rate fades with it.
        """
        if self.gap_s is None or self.last_at is None:
            return 0.0
        silence = now - self.last_at
        gap = max(self.gap_s, 1e-4)
        return 1.0 / gap if silence <= gap else gap / (silence * silence)
