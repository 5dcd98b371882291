"""Waiting cases and devices, as the batching rule sees them."""

from dataclasses import dataclass

from pipeline.batching.latency import LatencyModel

NOW = 100.0


@dataclass(frozen=True, slots=True)
class Case:
    """One in the line. Its place tells that it was accepted `prepared_in_s` before it joined."""

    deadline: float = 1_000.0
    ready_at: float = NOW
    image_count: int = 1
    lane: str = "routine"
    prepared_in_s: float = 0.1

    @property
    def virtual_deadline(self) -> float:
        budget_s = {"urgent": 12.0, "routine": 30.0, "compensation": 600.0}[self.lane]
        return self.ready_at - (0.0 if self.lane == "compensation" else self.prepared_in_s) + budget_s


def put_off(*, waited_s: float = 0.0, image_count: int = 1) -> Case:
    """A case that is past its deadline and stands in line for so long."""
    return Case(deadline=NOW - 500, ready_at=NOW - waited_s, image_count=image_count, lane="compensation")


def one_second() -> LatencyModel:
    """A device that takes one second whatever the size, and a tenth of it more or less."""
    return LatencyModel(alpha_s=1.0, beta_s=0.0, spread=0.1)


def a_tenth_more_each() -> LatencyModel:
    """A device that takes a second, and a tenth more for each image; it is never wrong."""
    return LatencyModel(alpha_s=1.0, beta_s=0.1, spread=0.0)
