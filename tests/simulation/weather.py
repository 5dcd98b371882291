"""What goes wrong in one run: drawn from its seed, so that the seed is the whole story."""

import random
from dataclasses import dataclass

from pipeline.flow import DEADLINE_S, Lane, Pool
from tests.simulation.doorbells import Ways
from tests.simulation.world import Traits

STORM_S = 30.0
"""From then on nothing breaks any more."""
ARRIVAL_S = 20.0
LATER_S = 1_200.0
"""A second wave comes when put-off cases of the first are old."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One case that a client brings."""

    at_s: float
    lane: Lane
    deadline_s: float
    traits: Traits
    is_rung: bool
    """False: the gateway dies between its commit and the doorbell."""
    cancelled_after_s: float | None


@dataclass(frozen=True, slots=True)
class Weather:
    """All faults of a run; moments in seconds from its beginning."""

    ways: Ways
    crash_chance: float
    crashes: tuple[float, ...]
    freezes: tuple[tuple[float, float], ...]
    """(when, for how long) a worker stands still."""
    watcher_crashes: tuple[tuple[float, float], ...]
    """(when, for how long) nobody guards and sweeps."""
    redis_gone: tuple[tuple[float, float, bool], ...]
    """(when, for how long, whether it comes back empty)."""
    emptied: tuple[float, ...]
    device_gone: tuple[tuple[float, float], ...]
    """(when, for how long) there is no inference process at all."""
    devices: int
    device_factor: float
    """How much slower the devices are than they were at their warm-up."""
    clock_jumps: tuple[tuple[float, float], ...]
    """(when, by how many seconds) a worker's clock jumps."""
    arrivals: tuple[Arrival, ...]

    @property
    def is_calm(self) -> bool:
        """No process dies and no message is harmed."""
        broken = self.crashes or self.freezes or self.watcher_crashes or self.redis_gone or self.emptied or self.device_gone
        return not broken and self.crash_chance == 0 and self.ways == Ways()


def draw(dice: random.Random) -> Weather:
    """Draw a run's weather: some kinds of faults at a time, now and then none."""
    is_calm = dice.random() < 0.1

    def some(chance: float) -> bool:
        return not is_calm and dice.random() < chance

    def moments(chance: float, most: int) -> list[float]:
        return sorted(dice.uniform(1.0, STORM_S) for _ in range(dice.randint(1, most))) if some(chance) else []

    ways = Ways(
        lost=dice.uniform(0.0, 0.2) if some(0.4) else 0.0,
        doubled=dice.uniform(0.0, 0.5) if some(0.3) else 0.0,
        late=dice.uniform(0.0, 0.2) if some(0.3) else 0.0,
    )
    return Weather(
        ways=ways,
        crash_chance=dice.uniform(0.0, 0.05) if some(0.4) else 0.0,
        crashes=tuple(moments(0.4, 6)),
        freezes=tuple((at, dice.uniform(2.0, 15.0)) for at in moments(0.3, 4)),
        watcher_crashes=tuple((at, dice.uniform(1.0, 8.0)) for at in moments(0.3, 3)),
        redis_gone=tuple((at, dice.uniform(0.5, 10.0), dice.random() < 0.5) for at in moments(0.2, 2)),
        emptied=tuple(moments(0.2, 2)),
        device_gone=tuple((at, dice.uniform(5.0, 25.0)) for at in moments(0.2, 1)),
        devices=dice.choice([1, 2]),
        device_factor=dice.choice([2.0, 5.0, 12.0]) if some(0.3) else 1.0,
        clock_jumps=tuple((at, dice.choice([-300.0, 300.0, -2.0, 2.0])) for at in moments(0.2, 3)),
        arrivals=_arrivals(dice, poison=0.04 if some(0.4) else 0.0, flaws=0.15 if some(0.5) else 0.0),
    )


def _arrivals(dice: random.Random, *, poison: float, flaws: float) -> tuple[Arrival, ...]:
    moments = [dice.uniform(0.0, ARRIVAL_S) for _ in range(dice.randint(3, 25))]
    if dice.random() < 0.3:  # a study comes at once
        moments += [dice.uniform(0.0, ARRIVAL_S)] * dice.randint(4, 12)
    if dice.random() < 0.2:
        later_s = dice.uniform(0.1, 1.0) * LATER_S
        moments += [later_s + dice.uniform(0.0, 4.0) for _ in range(dice.randint(4, 12))]
    return tuple(_arrival(dice, at_s, poison=poison, flaws=flaws) for at_s in sorted(moments))


def _arrival(dice: random.Random, at_s: float, *, poison: float, flaws: float) -> Arrival:
    kills = dice.choice([Pool.INTAKE, Pool.INFERENCE, Pool.REPORTING]) if dice.random() < poison else None
    traits = Traits(
        kills=kills,
        fails=dice.randint(1, 4) if dice.random() < flaws else 0,
        is_rejected=dice.random() < flaws / 3,
        loses_tensors=int(dice.random() < flaws),
        needs_no_model=dice.random() < 0.1,
    )
    return Arrival(
        at_s,
        Lane.URGENT if dice.random() < 0.2 else Lane.ROUTINE,
        DEADLINE_S if dice.random() < 0.8 else dice.uniform(3.0, DEADLINE_S),
        traits,
        is_rung=dice.random() > flaws / 3,
        cancelled_after_s=dice.uniform(0.0, 10.0) if dice.random() < flaws / 3 else None,
    )
