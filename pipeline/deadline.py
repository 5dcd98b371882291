"""One deadline a case; what is left of it bounds every wait."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta


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
