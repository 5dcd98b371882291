"""Who is in the batch: the most that can all be answered in time, in the order of the line; and who cannot be any more."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pipeline.batching.lanes import LANE_WEIGHT, is_overdue
from pipeline.batching.latency import LatencyModel
from pipeline.flow import Lane

FINISH_MARGIN = 1.7
"""Spreads of the latency kept free before the deadline of everybody aboard."""
RIDERS_LENGTHEN = 1.06
"""Put-off cases in spare slots may make a batch so many times as long."""
OVERDUE_SLOTS = 1
"""Slots of a full batch that put-off cases have once one of them has waited in line for all of its budget."""


class Candidate(Protocol):
    """What the rule must know of a waiting case."""

    @property
    def virtual_deadline(self) -> float:
        """Its place in the line."""

    @property
    def deadline(self) -> float:
        """When it is due, in the clock of `now`."""

    @property
    def ready_at(self) -> float:
        """Since when it waits."""

    @property
    def image_count(self) -> int:
        """Rows that it takes in a batch."""

    @property
    def lane(self) -> str:
        """Its lane's name."""


@dataclass(frozen=True, slots=True)
class Boarding:
    """Places in the line, in its order."""

    members: tuple[int, ...] = ()
    images: int = 0
    """Of the members."""
    is_full: bool = False
    """There is no room for anybody else, or not for whoever waits next."""
    passes_over: bool = False
    """Somebody is not aboard who could be answered in time: by another batch, if it starts soon."""
    riders: tuple[int, ...] = ()
    """Put-off cases that go along in spare slots."""
    rider_images: int = 0
    late: tuple[int, ...] = ()
    """They cannot be answered in time by any batch that starts now, not even alone."""
    put_off: tuple[int, ...] = ()
    """All put-off cases in sight, the riders among them."""
    leeway_s: float = 0.0
    """From now until the tightest member must be done."""


def board(line: Sequence[Candidate], latency: LatencyModel, limit: int, *, now: float, after_s: float = 0.0) -> Boarding:
    """Choose from a line that is in the order of virtual deadlines.

    Whoever cannot be in the batch because it would end too late for them is passed over and stays, unless even a batch of
    their own would. Put-off cases are past their deadline: they take what the others leave. `after_s` is what a case needs
    at the least once its batch is done.
    """
    boat = _Boat(line, latency, limit, now + after_s)
    able, late, put_off = boat.sort()
    reserved = OVERDUE_SLOTS if limit > OVERDUE_SLOTS and boat.has_overdue(put_off, now) else 0
    members = boat.best(able, limit - reserved)
    if reserved and boat.leaves_urgent(able, members):
        members, reserved = boat.best(able, limit), 0
    images, leeway_s = boat.images(members), boat.tightest_s(members)
    passes_over = len(members) < len(able)
    riders = boat.riders(put_off, images, leeway_s, reserved) if put_off and members and (reserved or not passes_over) else []
    return Boarding(
        members=tuple(members),
        images=images,
        is_full=images + reserved >= limit or (passes_over and boat.leaves_no_room(able, members, limit - reserved - images)),
        passes_over=passes_over,
        riders=tuple(riders),
        rider_images=boat.images(riders),
        late=tuple(late),
        put_off=tuple(put_off),
        leeway_s=leeway_s,
    )


def fill(line: Sequence[Candidate], places: Iterable[int], limit: int) -> list[int]:
    """The longest head of these places that fits; a case larger than the limit goes alone."""
    chosen: list[int] = []
    images = 0
    for place in places:
        count = line[place].image_count
        if chosen and images + count > limit:
            break
        chosen.append(place)
        images += count
        if images >= limit:
            break
    return chosen


class _Boat:
    """One line at one moment, on one device."""

    def __init__(self, line: Sequence[Candidate], latency: LatencyModel, limit: int, not_before: float) -> None:
        self._line, self._latency, self._limit = line, latency, limit
        self._leeway_s = [case.deadline - not_before for case in line]
        self._needed_s = latency.at_most_each_s(limit, margin=FINISH_MARGIN)

    def images(self, places: Sequence[int]) -> int:
        return sum(self._line[place].image_count for place in places)

    def tightest_s(self, places: Sequence[int]) -> float:
        return min((self._leeway_s[place] for place in places), default=0.0)

    def has_overdue(self, put_off: Sequence[int], now: float) -> bool:
        return any(is_overdue(self._line[place].lane, joined_at=self._line[place].ready_at, now=now) for place in put_off)

    def leaves_urgent(self, able: Sequence[int], members: Sequence[int]) -> bool:
        return any(self._line[place].lane == Lane.URGENT and place not in members for place in able)

    def leaves_no_room(self, able: Sequence[int], members: Sequence[int], room: int) -> bool:
        """Whether somebody is left behind who takes more slots than there are."""
        return any(self._line[place].image_count > room for place in set(able).difference(members))

    def sort(self) -> tuple[list[int], list[int], list[int]]:
        """Places of those who can be answered in time, who cannot, and who were put off."""
        able: list[int] = []
        late: list[int] = []
        put_off: list[int] = []
        # This loop is over the whole line, at every look of every device.
        least_s, compensation = self._needed_s[1], Lane.COMPENSATION.value
        for place, (case, leeway_s) in enumerate(zip(self._line, self._leeway_s, strict=True)):
            if case.lane == compensation:
                put_off.append(place)
            elif leeway_s < least_s or (case.image_count > 1 and leeway_s < self._needs_s(case.image_count)):
                late.append(place)
            else:
                able.append(place)
        return able, late, put_off

    def best(self, able: Sequence[int], limit: int) -> list[int]:
        """Those that make the most of one batch, each of them answered in time; on a tie, whoever stands before the others."""
        chosen = fill(self._line, able, limit)
        if self._is_in_time(chosen):
            return chosen
        best: list[int] = []
        worth = 0.0
        heaviest = max(LANE_WEIGHT[self._line[place].lane] for place in able)
        most = limit if len(able) >= limit else min(limit, self.images(able))
        for size in range(most, 0, -1):
            if size * heaviest < worth:
                break
            needed_s, leeway_s = self._needed_s[size], self._leeway_s
            fit = fill(self._line, (place for place in able if leeway_s[place] >= needed_s), size)
            value = sum(LANE_WEIGHT[self._line[place].lane] for place in fit)
            if value >= worth and self._is_in_time(fit):
                best, worth = fit, value
        return best

    def riders(self, put_off: Sequence[int], images: int, leeway_s: float, reserved: int) -> list[int]:
        """Put-off cases that lengthen the batch by little and make nobody late; one slot is theirs where they are overdue."""
        longest_s = RIDERS_LENGTHEN * self._needed_s[min(images, self._limit)]
        riders: list[int] = []
        for place in put_off:
            count = self._line[place].image_count
            if images + count > self._limit:
                break
            needed_s = self._needed_s[images + count]
            if needed_s > leeway_s or (needed_s > longest_s and len(riders) >= reserved):
                break
            riders.append(place)
            images += count
        return riders

    def _needs_s(self, images: int) -> float:
        if images <= self._limit:
            return self._needed_s[images]
        return self._latency.at_most_s(images, margin=FINISH_MARGIN)

    def _is_in_time(self, places: Sequence[int]) -> bool:
        return not places or self.tightest_s(places) >= self._needs_s(self.images(places))
