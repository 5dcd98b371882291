"""One run: a deployment, its clients, its weather and its judge, all from one seed."""

import logging
import random
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import structlog

from pipeline.persistence.ledger import sweep
from tests.simulation import judge
from tests.simulation.deployment import RINGS_A_ROUND, Deployment
from tests.simulation.weather import Weather


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to."""

    seed: int
    weather: Weather
    trace: tuple[str, ...]
    troubles: tuple[str, ...]
    """Violated invariants; none in a clean run."""


def simulate(seed: int) -> Outcome:
    """Run one seed to its end; the same seed always gives the same trace."""
    with _still_and_small():
        random.seed(seed)  # the product draws the jitter of a retry from it
        deployment = Deployment(random.Random(seed))
        world = deployment.world
        try:
            with mock.patch("time.monotonic", world.services.clock.unix_s):
                deployment.run()
        except Exception as error:
            world.trouble(_place_of(error))
        troubles = [*world.troubles, *judge.at_the_end(world, deployment.weather, deployment.guard_rounds)]
        return Outcome(seed, deployment.weather, tuple(world.schedule.trace), tuple(troubles))


def _place_of(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(frame.filename).name}:{frame.lineno})"


@contextmanager
def _still_and_small() -> Iterator[None]:
    before = structlog.get_config()
    # Nobody reads them, and they would cost half of the time.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL), logger_factory=structlog.ReturnLoggerFactory()
    )
    try:
        with mock.patch.object(sweep, "RINGS_A_ROUND", RINGS_A_ROUND):
            yield
    finally:
        structlog.configure(**before)
