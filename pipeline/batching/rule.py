"""When a batch fires. Pure: the moment, the line and the device's cost are arguments.

Asked while a device is idle, and never else. It fires when the batch is full, at the last call of its tightest member, when the
device has been held back for the whole window, when nobody else will join this line, and else as soon as waiting costs more than
it is worth. What waiting is worth: the next case comes so soon, by experience or because it is known to be on its way, that it is
saved from waiting for another device.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pipeline.batching.boarding import FINISH_MARGIN, Boarding, Candidate, board, fill
from pipeline.batching.lanes import LANE_WEIGHT, is_overdue, prepared_in_s
from pipeline.batching.latency import LatencyModel

FireReason = Literal["full", "last call", "ceiling", "stop rule", "drain", "spare device"]
TAIL_POWER = 4
"""p: 1 weighs the mean wait, more weighs the tail; flat between 2 and 8."""
LAST_CALL_MARGIN = FINISH_MARGIN + 0.3
"""Spreads of the latency kept free when the last call comes: a little more than who is aboard must have, or they would be passed over."""
SPARE_LOAD = 0.5
"""Share of what all devices can do below which an idle one takes put-off cases for themselves."""
SHORTEST_SLEEP_S = 0.001


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The upper bounds of a batch and of a hold."""

    images: int = 16
    """Most images in a batch: the setting, or what the device's memory takes where that is less."""
    window_s: float = 2.0
    """Longest that an idle device is held back for company."""

    def within(self, images: int) -> "Ceilings":
        """The same for a device whose memory takes so many images."""
        return self if images >= self.images else Ceilings(max(images, 1), self.window_s)


@dataclass(frozen=True, slots=True)
class Situation:
    """What the rule is told besides the line."""

    now: float
    held_since: float | None
    """Since when this idle device has been held back; None where it has not."""
    hazard: float
    """Expected arrivals a second."""
    next_free_in_s: float | None
    """Seconds until another device is free; None where none is busy."""
    company: int = 0
    """Cases that were admitted and are still being prepared: known to come, not only expected."""
    idle_count: int = 1
    """Idle devices that serve this line, this one included."""
    device_count: int = 1
    """All devices that serve it."""
    after_s: float = 0.0
    """What a case needs at the least once its batch is done."""
    is_last: bool = False
    """Nobody else joins this line: its model is being replaced."""


@dataclass(frozen=True, slots=True)
class Fire:
    """Run these now, and let go of those that are late."""

    members: tuple[int, ...]
    """Places in the line; the riders come last."""
    image_count: int
    reason: FireReason
    predicted_s: float
    slack_s: float
    """What the tightest member has left after the predicted end; 0 where nobody aboard has a deadline to keep."""
    late: tuple[int, ...] = ()
    """Places of those that no batch could answer in time any more."""
    rider_count: int = 0
    waited_s: float = 0.0
    """What everybody aboard has waited, added up."""
    ceiling: int = 0
    """Most images that this batch could have had."""
    newcomer_waits_s: float = 0.0
    """R: how long a case that comes next has to wait for a device."""
    hazard: float = 0.0
    """Arrivals a second that were expected."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Ask again after this long, or when something happens."""

    seconds: float


@dataclass(frozen=True, slots=True)
class LetGo:
    """Nobody can be answered in time any more: these are left to compensation, and the device stays idle."""

    late: tuple[int, ...]


Decision = Fire | Hold | LetGo | None


def decide(line: Sequence[Candidate], latency: LatencyModel, ceilings: Ceilings, situation: Situation) -> Decision:
    """Decide for one idle device. `line` is in the order of virtual deadlines; None where it is empty."""
    boarding = board(line, latency, ceilings.images, now=situation.now, after_s=situation.after_s)
    question = _Question(line, latency, ceilings, situation, boarding)
    if boarding.members:
        return question.answer()
    if boarding.late:
        return LetGo(boarding.late)
    return question.answer_for_put_off() if boarding.put_off else None


@dataclass(frozen=True, slots=True)
class _Question:
    """One decision and what it is taken on."""

    line: Sequence[Candidate]
    latency: LatencyModel
    ceilings: Ceilings
    situation: Situation
    boarding: Boarding

    @property
    def cost_s(self) -> float:
        return self.latency.seconds(self.boarding.images)

    @property
    def newcomer_waits_s(self) -> float:
        """R: until the next device is free for one that comes now, if this one fires; shared by those that are idle."""
        run_s, free_s = self.cost_s, self.situation.next_free_in_s
        wait_s = run_s if free_s is None else min(max(free_s, 0.0), run_s)
        return wait_s / max(self.situation.idle_count, 1)

    def answer(self) -> Fire | Hold:
        now = self.situation.now
        last_call = now + self.boarding.leeway_s - self.latency.at_most_s(self.boarding.images, margin=LAST_CALL_MARGIN)
        ceiling = self._ceiling()
        if self.boarding.is_full:
            return self._fire("full")
        if now >= last_call or self.boarding.passes_over:
            return self._fire("last call")
        if now >= ceiling:
            return self._fire("ceiling")
        if self.situation.is_last:
            return self._fire("drain")
        if not self._is_worth_waiting():
            return self._fire("stop rule")
        # Who joins wakes the former; this look is for those who do not come after all.
        look = now + max(self.cost_s / 8, 0.002)
        return Hold(max(SHORTEST_SLEEP_S, min(last_call, ceiling, look) - now))

    def answer_for_put_off(self) -> Fire | Hold:
        """Nobody waits who has a deadline: a device takes put-off cases if another is left for who comes, and there is little to do."""
        situation, limit = self.situation, self.ceilings.images
        load = situation.hazard * self.latency.seconds(limit) / (max(situation.device_count, 1) * limit)
        is_spare = situation.idle_count > 1 or situation.device_count <= 1
        is_overdue_now = self._is_overdue(self.boarding.put_off[0])
        if not (is_spare and load < SPARE_LOAD) and not is_overdue_now and not situation.is_last:
            return Hold(max(SHORTEST_SLEEP_S, self.latency.seconds(1)))
        members = tuple(fill(self.line, self.boarding.put_off, limit))
        images = sum(self.line[place].image_count for place in members)
        return self._made("spare device", members, images, slack_s=0.0)

    def _is_overdue(self, place: int) -> bool:
        return is_overdue(self.line[place].lane, joined_at=self.line[place].ready_at, now=self.situation.now)

    def _fire(self, reason: FireReason) -> Fire:
        boarding = self.boarding
        images = boarding.images + boarding.rider_images
        slack_s = boarding.leeway_s - self.latency.seconds(images)
        return self._made(reason, boarding.members + boarding.riders, images, slack_s=slack_s)

    def _made(self, reason: FireReason, members: tuple[int, ...], images: int, *, slack_s: float) -> Fire:
        now = self.situation.now
        return Fire(
            members=members,
            image_count=images,
            reason=reason,
            predicted_s=self.latency.seconds(images),
            slack_s=slack_s,
            late=self.boarding.late,
            rider_count=len(self.boarding.riders),
            waited_s=sum(max(now - self.line[place].ready_at, 0.0) for place in members),
            ceiling=self.ceilings.images,
            newcomer_waits_s=self.newcomer_waits_s,
            hazard=self.situation.hazard,
        )

    def _ceiling(self) -> float:
        """Until when an idle device may be held back for company at most."""
        held_since, now = self.situation.held_since, self.situation.now
        if held_since is None:
            return now + self.ceilings.window_s
        # Where the clock was set back nobody knows for how long it was held, so it is held no longer.
        return now if held_since > now else held_since + self.ceilings.window_s

    def _is_worth_waiting(self) -> bool:
        """Weigh one more arrival, saved from waiting for another device, against everybody's longer wait."""
        cost_s, now = self.cost_s, self.situation.now
        gain = self._arrivals_per_s() * ((self.newcomer_waits_s + cost_s) ** TAIL_POWER - cost_s**TAIL_POWER)
        aboard = (self.line[place] for place in self.boarding.members)
        price = sum(LANE_WEIGHT[case.lane] * (max(now - case.ready_at, 0.0) + cost_s) ** (TAIL_POWER - 1) for case in aboard)
        return gain > TAIL_POWER * price

    def _arrivals_per_s(self) -> float:
        """What is expected by experience, or by those who are known to come: each as soon as those here were prepared, in the mean."""
        if self.situation.company == 0:
            return self.situation.hazard
        aboard = [self.line[place] for place in self.boarding.members]
        prepared_s = sum(prepared_in_s(case.lane, place=case.virtual_deadline, joined_at=case.ready_at) for case in aboard) / len(aboard)
        return max(self.situation.hazard, self.situation.company / max(prepared_s, SHORTEST_SLEEP_S))
