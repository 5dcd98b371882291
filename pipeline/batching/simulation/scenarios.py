"""The scenarios: what comes, on what devices, and which rules are compared."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.batching.simulation.bounds import least_missed_percent
from pipeline.batching.simulation.cost import Cost, Spell
from pipeline.batching.simulation.house import House, Rule
from pipeline.batching.simulation.measures import Figures, measure
from pipeline.batching.simulation.rules.adaptive import Aimd, Cork, Deferred, EarlyDrop
from pipeline.batching.simulation.rules.ours import SecondRead
from pipeline.batching.simulation.rules.windows import CommittedWindow, Delay, PulledWindow, SameShapeRun, StrictLanes, WindowEach
from pipeline.batching.simulation.workload import DAY, Arrivals, Mix, images, steady, studies

OURS = "secondread"
DEVICES = 4

RULES: Mapping[str, Callable[[], Rule]] = {
    OURS: SecondRead,
    "window, committed": CommittedWindow,
    "window, pulled": PulledWindow,
    "window, each worker": WindowEach,
    "greedy": lambda: Delay(0.0),
    "delay 2 s": lambda: Delay(2.0),
    "delay 2 s, reject": lambda: Delay(2.0, 12.0),
    "CORK": Cork,
    "AIMD": Aimd,
    "early drop": EarlyDrop,
    "deferred": Deferred,
}
SHAPE_RULES: Mapping[str, Callable[[], Rule]] = {OURS: SecondRead, "cut at a shape": SameShapeRun}
LANE_RULES: Mapping[str, Callable[[], Rule]] = {OURS: SecondRead, "strict priority": StrictLanes}

SLOW, FAST = Cost(7.5), Cost(0.020)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One table of the simulation."""

    name: str
    title: str
    arrivals: Arrivals
    cost: Cost = SLOW
    mix: Mix = field(default_factory=Mix)
    rules: Mapping[str, Callable[[], Rule]] = field(default_factory=lambda: RULES)


SCENARIOS: Sequence[Scenario] = (
    Scenario("light", "2 a second", steady(2, 3000)),
    Scenario("busy", "4.5 a second, 74 % of what the devices can do", steady(4.5, 4000)),
    Scenario("full", "5.8 a second, 95 %", steady(5.8, 4000)),
    Scenario("overload", "8 a second, 131 %", steady(8, 4000)),
    Scenario("day", "a day in an hour: studies, and two spikes above what the devices can do", studies(DAY)),
    Scenario(
        "slowdown", "4.2 a second; for 500 s all devices are 1.6 times slower", steady(4.2, 5500), Cost(7.5, slow=Spell(400, 900, 1.6))
    ),
    Scenario("memory", "3 a second; for 600 s only 9 images fit", steady(3, 3500), Cost(7.5, short_of_memory=Spell(300, 900, 9))),
    Scenario("fast", "a model of 20 ms, 3 a second", steady(3, 2000), FAST),
    Scenario("lanes", "7 a second, 115 %; 15 % urgent", steady(7, 3000), SLOW, Mix(urgent_share=0.15), LANE_RULES),
    Scenario("shapes", "5 a second; 70 % small, at 0.4 of the cost", steady(5, 2500), SLOW, Mix(small_share=0.7), SHAPE_RULES),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A scenario's figures, by rule, and the bound on misses for any rule."""

    scenario: Scenario
    figures: Mapping[str, Figures]
    least_missed_percent: float


def play(scenario: Scenario, rule: Callable[[], Rule], *, seed: int) -> Figures:
    """One rule in one scenario, with the images of one seed."""
    stream = images(scenario.arrivals, scenario.mix, seed)
    return measure(stream, House(stream, scenario.cost, devices=DEVICES, seed=seed).live(rule()), devices=DEVICES)


def bound(scenario: Scenario, *, seeds: int) -> float:
    """The misses that no rule avoids, the mean over seeds. Slow devices and short memory are left out of account: there it is loose."""
    streams = [images(scenario.arrivals, scenario.mix, seed) for seed in range(seeds)]
    return sum(least_missed_percent(stream, scenario.cost, devices=DEVICES) for stream in streams) / seeds
