"""What all processes of a run share, and what is wrong with its cases."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast
from uuid import UUID

from celery import Celery

from pipeline.flow import Pool
from tests.simulation.doorbells import Redis
from tests.simulation.schedule import Host, Schedule
from tests.simulation.statements import MemoryLedger
from workers.wiring import Services


@dataclass(frozen=True, slots=True)
class Traits:
    """What is wrong with one case."""

    kills: Pool | None = None
    """The pool whose process dies of it, each time."""
    fails: int = 0
    """How often the first pools find that something they need is away."""
    is_rejected: bool = False
    loses_tensors: int = 0
    needs_no_model: bool = False

    @property
    def is_innocent(self) -> bool:
        """Nothing about the case keeps it from a final answer."""
        return self.kills is None and not self.is_rejected


@dataclass(slots=True)
class World:
    """What all processes share."""

    schedule: Schedule
    dice: random.Random
    memory: MemoryLedger
    redis: Redis
    services: Services
    traits: dict[UUID, Traits]
    troubles: list[str] = field(default_factory=list)
    """What should never be seen, in the order in which it was seen."""
    crash: Callable[[Host], None] = lambda _: None
    """End a host and see to it that it starts again."""
    device_factor: float = 1.0
    """How much slower the devices are than they were at their warm-up."""
    crash_chance: float = 0.0
    """Of a crash at each of a worker's crash points."""

    @property
    def app(self) -> Celery:
        """The one call of Celery that the product makes here is answered by the doorbells."""
        return cast(Celery, self.redis)

    def trouble(self, what: str) -> None:
        """Note a violation."""
        self.troubles.append(f"{self.schedule.now:.3f} {what}")
        self.schedule.note("judge", what)
