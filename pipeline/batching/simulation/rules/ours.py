"""The product's rule in a simulated house: the same `Feeder`, rule, lanes, cost model and share of compensation as in production.

What is simulated is only who calls them: a process a device, each with what it has learned of its own device, one of them at a time.
"""

from bisect import insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipeline.batching.choice import Offer, most_pressing
from pipeline.batching.feeder import Devices, Feeder
from pipeline.batching.lanes import virtual_deadline
from pipeline.batching.latency import LatencyModel
from pipeline.batching.memory_cap import MemoryCap
from pipeline.batching.rule import LAST_CALL_MARGIN, Ceilings, Fire, Hold, LetGo
from pipeline.batching.simulation.cost import LIMIT
from pipeline.batching.simulation.house import House, Run
from pipeline.batching.simulation.workload import AFTER_S
from pipeline.cases.compensation import Share
from pipeline.flow import Lane

CEILINGS = Ceilings(images=LIMIT, window_s=2.0)
SWEEP = (1, 2, 4, 8, 16)
IN_SIGHT = 4 * LIMIT
"""Cases at the head of the line that a former looks at."""
ANSWERED_BEFORE_S = 2.0
"""So long before its deadline a case that is late goes to the compensation queue."""
RELEASE_EVERY_S = 1.0


@dataclass(slots=True, order=True)
class Place:
    """One case in the line, in the order of virtual deadlines."""

    virtual_deadline: float
    number: int
    deadline: float = field(compare=False)
    ready_at: float = field(compare=False)
    lane: str = field(compare=False)
    image_count: int = field(default=1, compare=False)


@dataclass(slots=True)
class Process:
    """What the process of one device holds: a feeder for each shape, its memory, and halves of a batch that broke."""

    feeders: dict[float, Feeder]
    cap: MemoryCap = field(default_factory=lambda: MemoryCap.from_sweep(SWEEP))
    predicted_until: float = 0.0
    halves: deque[tuple[int, ...]] = field(default_factory=deque)
    has_broken: bool = False


class SecondRead:
    """The house as the product runs it."""

    ceilings = CEILINGS

    def begin(self, house: House) -> None:
        """Warm every device up: a sweep for each shape."""
        self.house = house
        scales = sorted({image.scale for image in house.images})
        self.lines: dict[float, list[Place]] = {scale: [] for scale in scales}
        self.processes = [Process({scale: self._warm(scale) for scale in scales}) for _ in range(house.devices)]
        self.turn: int | None = None
        self.share, self.released_at = Share(), 0.0
        self.put_off: deque[tuple[float, int]] = deque()
        self.completed_count = 0

    def _warm(self, scale: float) -> Feeder:
        sweep = {size: scale * self.house.cost.draw_s(size, self.house.dice) for size in SWEEP}
        return Feeder(LatencyModel.from_sweep(sweep), after_s=AFTER_S)

    def arrived(self, number: int) -> None:
        """Join the line of its shape; every process hears of it."""
        image = self.house.images[number]
        place = virtual_deadline(image.lane, accepted_at=image.admitted_at, joined_at=self.house.now)
        self._join(Place(place, number, image.deadline, self.house.now, image.lane))

    def _join(self, place: Place) -> None:
        scale = self.house.images[place.number].scale
        insort(self.lines[scale], place)
        for process in self.processes:
            process.feeders[scale].arrivals.saw(1, self.house.now)

    def ended(self, run: Run) -> None:
        """Learn from the run; run the halves of one that broke, one after the other, before anything else."""
        process, scale = self.processes[run.device], max(self.house.images[number].scale for number in run.numbers)
        if run.has_room:
            if not process.has_broken:
                process.feeders[scale].latency.learn(len(run.numbers), run.ends_at - run.began_at)
            process.cap.ran(len(run.numbers))
            self.completed_count += len(run.numbers)
        else:
            process.has_broken = True
            process.cap.overflowed(len(run.numbers))
            middle = len(run.numbers) // 2
            process.halves.extendleft((run.numbers[middle:], run.numbers[:middle]))
        if process.halves:
            self.house.fire(run.device, process.halves.popleft())
        else:
            process.has_broken = False

    def look(self) -> None:
        """Give idle devices what the rule gives them, one former at a time; release put-off cases once a second."""
        self._release()
        while idle := self.house.idle():
            device = self.turn if self.turn in idle else idle[0]
            if not self._fires(device, idle):
                self.turn = device
                return
            self.turn = None

    def _fires(self, device: int, idle: Sequence[int]) -> bool:
        now, process = self.house.now, self.processes[device]
        others = Devices(
            {str(each): max(self.processes[each].predicted_until, now) for each in self.house.running},
            len(idle) - 1,
        )
        ceilings = self.ceilings.within(process.cap.images)
        offers: list[tuple[float, Fire]] = []
        for scale, line in self.lines.items():
            feeder = process.feeders[scale]
            decision = feeder.ask(line[:IN_SIGHT], ceilings, others, now=now, company=lambda limit: min(self.house.company(), limit))
            if isinstance(decision, LetGo):
                self._let_go(line, decision.late)
                return True
            if isinstance(decision, Hold):
                self.house.look_again_at(now + decision.seconds)
            elif isinstance(decision, Fire):
                offers.append((scale, decision))
        if not offers:
            return False
        scale, fire = offers[self._choose(process, ceilings, offers)]
        process.feeders[scale].held_since = None
        self._run(device, self.lines[scale], fire)
        return True

    def _choose(self, process: Process, ceilings: Ceilings, offers: Sequence[tuple[float, Fire]]) -> int:
        if len(offers) == 1:
            return 0
        made = []
        for scale, fire in offers:
            latency = process.feeders[scale].latency
            margin_s = LAST_CALL_MARGIN * latency.spread * fire.predicted_s
            made.append(Offer(fire, latency.seconds(ceilings.images), margin_s))
        return most_pressing(made, self.house.devices)

    def _run(self, device: int, line: list[Place], fire: Fire) -> None:
        self.house.fire(device, [line[place].number for place in fire.members])
        self.processes[device].predicted_until = self.house.now + fire.predicted_s
        gone = set(fire.members)
        self._let_go(line, fire.late, besides=gone)

    def _let_go(self, line: list[Place], late: Sequence[int], *, besides: set[int] = frozenset()) -> None:  # type: ignore[assignment]
        for place in late:
            self.house.give_up(line[place].number)
            self.put_off.append((line[place].deadline - ANSWERED_BEFORE_S, line[place].number))
        gone = besides.union(late)
        line[:] = [each for place, each in enumerate(line) if place not in gone]

    def _release(self) -> None:
        """What the guard does: send some put-off cases back, as many as the rest of the house leaves room for."""
        if not self.put_off:
            return
        now = self.house.now
        if now - self.released_at < RELEASE_EVERY_S:
            self.house.look_again_at(self.released_at + RELEASE_EVERY_S)
            return
        self.released_at = now
        everybody = [place.lane for line in self.lines.values() for place in line]
        running = sum(number in self.house.fates.given_up_at for run in self.house.running.values() for number in run.numbers)
        count = self.share.release_count(
            waiting_count=sum(lane != Lane.COMPENSATION for lane in everybody) + self.house.company(),
            running_count=everybody.count(Lane.COMPENSATION) + running,
            completed_count=self.completed_count,
        )
        self.completed_count = 0
        while count > 0 and self.put_off and self.put_off[0][0] <= now:
            number = self.put_off.popleft()[1]
            place = virtual_deadline(Lane.COMPENSATION, accepted_at=self.house.images[number].admitted_at, joined_at=now)
            self._join(Place(place, number, self.house.images[number].deadline, now, Lane.COMPENSATION))
            count -= 1
        self.house.look_again_at(now + RELEASE_EVERY_S)
