"""All processes and clients of a run, and the hand that breaks them."""

import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from uuid import UUID

from pipeline.deadline import Deadline
from pipeline.errors import StaleCompletion, Unavailable
from pipeline.flow import Pool
from pipeline.persistence.ledger.admission import Accepted, NewCase, accept_cases
from pipeline.persistence.ledger.claims import Rung, read_unclaimed
from pipeline.persistence.ledger.outcomes import Ownership, cancel_case
from pipeline.persistence.uploads import ObjectPlace
from pipeline.tensors.memory import MemoryStore
from schemas.work import CaseInput
from tests.ledger_model.model import Model
from tests.ledger_model.rows import Limits
from tests.simulation import judge
from tests.simulation.doorbells import Line, Redis
from tests.simulation.processes import LOOK_AGAIN_S, CpuWorker, Former
from tests.simulation.schedule import NOON, Host, Schedule, Steps, Task
from tests.simulation.statements import MODEL, MemoryLedger, moment
from tests.simulation.weather import STORM_S, Arrival, draw
from tests.simulation.world import World
from workers import guard as guard_process
from workers import sweeper as sweeper_process
from workers.doorbell import ring
from workers.guard import Guard
from workers.settings import Settings
from workers.sweeper import Sweeper
from workers.wiring import Services

RINGS_A_ROUND = 4
OVERTAKEN_BY = 6
"""Fewer than the product's, so that a few dozen cases come to them."""
MOST_STEPS = 30_000
"""A run takes a thousand or two; one that takes so many does not come to its end."""
PROCESSES = {Pool.INTAKE: 2, Pool.REPORTING: 1}
THREADS = 2
LOOK_EVERY = 4
"""Guard rounds between two looks of the judge, which cost as much as a round."""
TENANT = UUID(int=1)
LOST_WITH_ITS_TAKER = 0.3
"""Of the messages that a dying worker holds: it had taken them, and not yet written down that it had."""


SETTINGS = Settings(state_dir=Path("/nowhere"))


class WorldClock:
    """The database's clock, as every process tells it: no host's jump moves it."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def unix_s(self) -> float:
        """Seconds since 1970."""
        return self._schedule.now

    def now(self) -> datetime:
        """The moment."""
        return moment(self._schedule.now)


class OneLine(Services):
    """Services whose only line is the simulated one."""

    def line(self, model: str) -> Line:  # type: ignore[override]
        """The line of the one model."""
        return Line(self.redis)  # type: ignore[arg-type]


class Deployment:
    """All processes, and the hand that breaks them."""

    def __init__(self, dice: random.Random) -> None:
        self.weather, self._dice = draw(dice), dice
        schedule = Schedule()
        memory = MemoryLedger(Model(Limits(overtaken_by=OVERTAKEN_BY), NOON))
        server = Redis(schedule, dice, self.weather.ways)
        services = OneLine(
            settings=SETTINGS,
            worker="",
            ledger=memory.ledger(),
            clock=WorldClock(schedule),  # type: ignore[arg-type]
            redis=server,  # type: ignore[arg-type]
            tensors=MemoryStore(capacity_bytes=1),
            uploads=ObjectPlace("memory://uploads"),
            sources={},
            cards={MODEL: None},  # type: ignore[dict-item]
        )
        self.world = World(schedule, dice, memory, server, services, {}, crash=self.crash, crash_chance=self.weather.crash_chance)
        self.world.device_factor = self.weather.device_factor
        memory.speaks_of = server.speaks_of
        server.wake, server.joined = self._ring, self._joined
        self.guard_rounds: list[float] = []
        self._still_to_come = deque(self.weather.arrivals)
        self._workers: dict[Host, Pool] = {}
        self._formers: dict[Host, Former] = {}
        self._starts = 0
        self._is_over = False

    def run(self) -> None:
        """From the first arrival until every case has come to its end, or is a human's."""
        schedule = self.world.schedule
        for pool, number in (*PROCESSES.items(), (Pool.INFERENCE, self.weather.devices)):
            for _ in range(number):
                self._start(pool)
        self._watchers = Host("watchers")
        self._start_watchers()
        for number, arrival in enumerate(self.weather.arrivals, 1):
            schedule.at(NOON + arrival.at_s, lambda number=number, arrival=arrival: self._submit(number, arrival))  # type: ignore[misc]
        self._let_it_break()
        schedule.run(most_steps=MOST_STEPS, is_done=lambda: self._is_over)

    # Clients

    def _submit(self, number: int, arrival: Arrival) -> None:
        self._still_to_come.popleft()
        world, case_id, now = self.world, UUID(int=number), moment(self.world.schedule.now)
        self._tell_the_time()
        world.traits[case_id] = arrival.traits
        deadline = Deadline.after(arrival.deadline_s, now=now)
        new = NewCase(case_id, TENANT, arrival.lane, CaseInput(instances=()), now, deadline.at, case_id.hex, b"")
        (accepted,) = accept_cases(world.services.ledger, [new])
        assert isinstance(accepted, Accepted)
        world.schedule.note("client", f"submits {number} {arrival.lane} {arrival.traits}")
        if arrival.is_rung:
            ring(world.app, Pool.INTAKE, [Rung(case_id, accepted.publish_no, 0, arrival.lane, deadline.at)])
        if arrival.cancelled_after_s is not None:
            world.schedule.at(world.schedule.now + arrival.cancelled_after_s, lambda: self._cancel(case_id))

    def _cancel(self, case_id: UUID) -> None:
        self._tell_the_time()
        seen = read_unclaimed(self.world.services.ledger, case_id)
        case = self.world.memory.model.cases[case_id]
        if seen is not None and case.is_open:
            with suppress(StaleCompletion):
                cancel_case(self.world.services.ledger, Ownership(case_id, seen.attempt, case.state), callback=None)

    # Processes

    def _start(self, pool: Pool) -> None:
        self._starts += 1
        host = Host(f"{pool.value}-{self._starts}")
        self._workers[host] = pool
        if pool is Pool.INFERENCE:
            former = self._formers[host] = Former(self.world, host)
            self._tasks(host, former.keep_leases, former.form_batches)
        else:
            worker = CpuWorker(self.world, host, pool)
            self._tasks(host, worker.keep_leases, *[worker.answer_doorbells] * THREADS)

    def _tasks(self, host: Host, *threads: Callable[[Task], Steps]) -> None:
        for thread in threads:
            self.world.schedule.start(host, lambda task, thread=thread: self._in_time(thread(task)))  # type: ignore[misc]

    def _in_time(self, steps: Steps) -> Steps:
        """Tell the ledger the time before each step; sleep on while there is nothing to do for anybody."""
        while True:
            self._tell_the_time()
            try:
                sleep_s = next(steps)
            except StopIteration:
                return
            yield max(sleep_s, self._nothing_happens_for_s()) if sleep_s <= LOOK_AGAIN_S else sleep_s

    def _tell_the_time(self) -> None:
        model = self.world.memory.model
        model.now = max(model.now, self.world.schedule.now)

    def _nothing_happens_for_s(self) -> float:
        cases = self.world.memory.model.cases.values()
        if any(case.is_open and case.state != "deferred" for case in cases):
            return 0.0
        comes = [NOON + self._still_to_come[0].at_s] if self._still_to_come else []
        comes += [case.due_at for case in cases if case.is_open and case.worklist_at is None]
        if not comes:
            self._is_over = True
        return max(0.0, min(comes, default=0.0) - self.world.schedule.now)

    def _ring(self, pool: Pool) -> None:
        # A ring of inference ends at once: all that it does is to wake the former.
        if pool is not Pool.INFERENCE or self.world.redis.take(pool):
            self._wake(pool)

    def _joined(self, count: int) -> None:
        for former in self._formers.values():
            former.hear(count)
        self._wake(Pool.INFERENCE)

    def _wake(self, pool: Pool) -> None:
        for host in [host for host, of_pool in self._workers.items() if of_pool is pool]:
            for task in host.tasks:
                if task.is_idle:
                    self.world.schedule.wake(task)

    # Who watches

    def _start_watchers(self) -> None:
        self._watchers = Host("watchers")
        self._tasks(self._watchers, self._guard, self._sweep)

    def _guard(self, _task: Task) -> Steps:
        yield guard_process.ASK_EVERY_S * self._dice.random()
        guard = Guard(self.world.services, self.world.app)
        while True:
            guard.round()
            self.guard_rounds.append(self.world.schedule.now)
            if len(self.guard_rounds) % LOOK_EVERY == 0:
                judge.after_a_guard_round(self.world)
            yield guard_process.ROUND_S

    def _sweep(self, _task: Task) -> Steps:
        yield sweeper_process.ROUND_S * self._dice.random()
        sweeper = Sweeper(self.world.services, self.world.app)
        while True:
            self.world.memory.rung.clear()
            with suppress(Unavailable):
                sweeper.round()
            judge.after_a_sweep(self.world, most=RINGS_A_ROUND)
            yield sweeper_process.ROUND_S

    # Faults

    def _let_it_break(self) -> None:
        weather, at = self.weather, self.world.schedule.at
        for when in weather.crashes:
            at(NOON + when, lambda: self.crash(self._any_host()))
        for when, for_s in weather.freezes:
            at(NOON + when, lambda for_s=for_s: self._freeze(self._any_host(), for_s))  # type: ignore[misc]
        for when, for_s in weather.watcher_crashes:
            at(NOON + when, lambda for_s=for_s: self._lose_watchers(for_s))  # type: ignore[misc]
        for when, for_s, is_empty in weather.redis_gone:
            at(NOON + when, self.world.redis.go)
            at(NOON + when + for_s, lambda is_empty=is_empty: self.world.redis.come(is_empty=is_empty))  # type: ignore[misc]
        for when, for_s in weather.device_gone:
            at(NOON + when, lambda for_s=for_s: self._lose_devices(for_s))  # type: ignore[misc]
        for when in weather.emptied:
            at(NOON + when, self.world.redis.empty)
        for when, by_s in weather.clock_jumps:
            at(NOON + when, lambda by_s=by_s: self._jump(self._any_host(), by_s))  # type: ignore[misc]
        at(NOON + STORM_S, self._calm_down)

    def _calm_down(self) -> None:
        self.world.device_factor, self.world.crash_chance = 1.0, 0.0
        self.world.redis.ways = replace(self.world.redis.ways, lost=0.0, doubled=0.0, late=0.0)

    def _any_host(self) -> Host:
        return self._dice.choice(list(self._workers) or [Host("nobody", is_up=False)])

    def _lose_devices(self, for_s: float) -> None:
        for host in list(self._formers):
            self.crash(host, for_s)

    def crash(self, host: Host, for_s: float | None = None) -> None:
        """kill -9 of a worker; another is started after a while."""
        if not host.is_up:
            return
        self.world.schedule.note(host.name, "dies")
        pool = self._workers.pop(host)
        self._formers.pop(host, None)
        self.world.schedule.end(host)
        self.world.redis.lose_some_of(pool, LOST_WITH_ITS_TAKER)
        self.world.schedule.at(self.world.schedule.now + (for_s or self._dice.uniform(0.5, 4.0)), lambda: self._start(pool))

    def _freeze(self, host: Host, for_s: float) -> None:
        self.world.schedule.note(host.name, f"stands still for {for_s:.1f} s")
        host.frozen_until = host.last_disturbed_at = self.world.schedule.now + for_s

    def _lose_watchers(self, for_s: float) -> None:
        if self._watchers.is_up:
            self.world.schedule.note("watchers", f"are gone for {for_s:.1f} s")
            self.world.schedule.end(self._watchers)
            self.world.schedule.at(self.world.schedule.now + for_s, self._start_watchers)

    def _jump(self, host: Host, by_s: float) -> None:
        self.world.schedule.note(host.name, f"jumps by {by_s} s")
        host.skew_s += by_s
