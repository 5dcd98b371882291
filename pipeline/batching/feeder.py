"""One line as the process of one device knows it: what a batch costs, how cases come, for how long the device is held back."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pipeline.batching.arrivals import Arrivals
from pipeline.batching.boarding import Candidate
from pipeline.batching.latency import LatencyModel
from pipeline.batching.rule import Ceilings, Decision, Fire, Hold, Situation, decide


@dataclass(frozen=True, slots=True)
class Devices:
    """The other devices that serve a line."""

    busy_until: Mapping[str, float] = field(default_factory=dict)
    """When each believes to be free, in the clock of `now`."""
    idle_count: int = 0


@dataclass(slots=True)
class Feeder:
    """Asks the rule about one line, and remembers what it must be told the next time."""

    latency: LatencyModel
    arrivals: Arrivals = field(default_factory=Arrivals)
    held_since: float | None = None
    """Since when the device has been held back for company in this line."""
    after_s: float = 0.0
    """What a case needs at the least once its batch is done."""
    is_last: bool = False
    """Nobody else joins this line."""

    def ask(self, line: Sequence[Candidate], ceilings: Ceilings, others: Devices, *, now: float, company: Callable[[int], int]) -> Decision:
        """Decide for the idle device.

        `company` counts cases that are known to be on their way, up to so many. It is asked only where the rule would fire
        for want of company, since it may have to ask somebody else.
        """
        situation = Situation(
            now=now,
            held_since=self.held_since,
            hazard=self.arrivals.hazard(now),
            next_free_in_s=min(others.busy_until.values()) - now if others.busy_until else None,
            idle_count=1 + others.idle_count,
            device_count=1 + others.idle_count + len(others.busy_until),
            after_s=self.after_s,
            is_last=self.is_last,
        )
        decision = decide(line, self.latency, ceilings, situation)
        if isinstance(decision, Fire) and decision.reason == "stop rule":
            known = company(ceilings.images - decision.image_count)
            decision = decide(line, self.latency, ceilings, replace(situation, company=known)) if known else decision
        if isinstance(decision, Hold):
            self.held_since = now if self.held_since is None else self.held_since
        elif decision is None:
            self.held_since = None
        return decision

    def held_s(self, now: float) -> float:
        """For how long the device has been held back for this line."""
        return 0.0 if self.held_since is None else max(now - self.held_since, 0.0)
