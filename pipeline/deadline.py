"""One deadline a case; what is left of it bounds every wait."""

from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from statistics import median

RECENT = 50
"""Cases that tell how long a case takes."""


def utc_now() -> datetime:
    """The wall clock, aware. Passed as an argument wherever a rule needs the time."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Deadline:
    """The moment a case is due."""

    at: datetime

    @classmethod
    def after(cls, budget_s: float, *, now: datetime) -> "Deadline":
        """The deadline of a case admitted now."""
        return cls(now + timedelta(seconds=budget_s))

    def remaining_s(self, now: datetime) -> float:
        """Seconds left; negative once it has passed."""
        return (self.at - now).total_seconds()

    def bound_s(self, wanted_s: float, *, now: datetime) -> float:
        """The longest wait that both the caller and the deadline allow; never negative."""
        return max(0.0, min(wanted_s, self.remaining_s(now)))


@dataclass(frozen=True, slots=True)
class Pace:
    """How long one pool's work takes, by the cases that it finished last. For several threads."""

    _recent_s: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))

    def note(self, service_s: float) -> None:
        """Learn from a finished case."""
        self._recent_s.append(service_s)

    def typical_s(self, otherwise_s: float) -> float:
        """The median of what was noted last; `otherwise_s` before anything was."""
        return median(known) if (known := list(self._recent_s)) else otherwise_s
