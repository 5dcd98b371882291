"""What must be shown, and whether it was."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pipeline.batching.simulation.measures import Figures
from pipeline.batching.simulation.scenarios import OURS, Outcome

URGENT_TOLERANCE_S = 0.5
"""Two rules' 99th percentiles of 450 urgent images differ by so much from seed to seed without any difference between the rules."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One promise about one scenario."""

    scenario: str
    promise: str
    value: Callable[[Mapping[str, Figures]], float]
    limit: float
    is_floor: bool = False
    """The value must not fall below the limit, instead of not exceeding it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A bar and what was reached."""

    bar: Bar
    reached: float

    @property
    def is_kept(self) -> bool:
        """Whether the promise holds."""
        return self.reached >= self.bar.limit if self.bar.is_floor else self.reached <= self.bar.limit


def _of(name: str, factor: float = 1.0) -> Callable[[Mapping[str, Figures]], float]:
    return lambda figures: factor * float(getattr(figures[OURS], name))


def _urgent_behind_strict(figures: Mapping[str, Figures]) -> float:
    return figures[OURS].urgent_p99_s - figures["strict priority"].urgent_p99_s


BARS: Sequence[Bar] = (
    Bar("busy", "nobody missed at 4.5/s (%)", _of("missed_percent"), 0.0),
    Bar("busy", "99th percentile at 4.5/s (s)", _of("p99_s"), 20.0),
    Bar("overload", "answered in time at 8/s (images/s)", _of("in_time_per_s"), 6.2, is_floor=True),
    Bar("day", "missed in the day (%)", _of("missed_percent"), 4.6),
    Bar("slowdown", "missed while devices are 1.6 times slower (%)", _of("missed_percent"), 10.0),
    Bar("memory", "missed while only 9 images fit (%)", _of("missed_percent"), 1.0),
    Bar("fast", "20 ms model at 3/s, 99th percentile of line and device (ms)", _of("line_and_device_p99_s", 1000), 30.0),
    Bar("lanes", "urgent 99th percentile behind strict priority's at 115 % (s)", _urgent_behind_strict, URGENT_TOLERANCE_S),
    Bar("lanes", "routine 99th percentile at 115 % (s)", _of("routine_p99_s"), 30.0),
)


def judge(outcomes: Sequence[Outcome]) -> list[Verdict]:
    """Hold every outcome against its bars; scenarios that were not played have none."""
    played = {outcome.scenario.name: outcome.figures for outcome in outcomes}
    return [Verdict(bar, bar.value(played[bar.scenario])) for bar in BARS if bar.scenario in played]
