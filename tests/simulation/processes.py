"""The processes of a deployment as tasks of the schedule: each does in virtual time what the product's does in real time.

What decides is the product's: its guard, its sweeper, its claims and endings, the batching rule, the split of suspects. What is
here is only that work takes time and that hosts die in the middle of it.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast
from uuid import UUID

from pipeline.batching.feeder import Devices, Feeder
from pipeline.batching.latency import LatencyModel
from pipeline.batching.rule import Ceilings, Fire, Hold, LetGo
from pipeline.cases.states import POOL_STATES, CaseState
from pipeline.errors import ExpiredAtStage, ModelFailed, QueueUnavailable, RejectedInput, TensorMissing, Unavailable
from pipeline.flow import Pool, least_s_after, least_s_of
from pipeline.persistence.ledger.claims import RENEW_EVERY_S, Claimed, HandOn, claim_cases, count_cases_of, hand_on, renew_leases
from pipeline.persistence.waiting_line import Waiting
from tests.simulation.doorbells import Letter, Line
from tests.simulation.schedule import Host, Steps, Task
from tests.simulation.world import World
from workers.doorbell import place_in_line, ring
from workers.endings import Reported, complete
from workers.isolation import apart, send_back
from workers.stage_task import PoolRuntime, StageClock, end_with_failure, leave_for_later, parse_message, put_back, require_time
from workers.wiring import Services

IDLE_S = 1.0
LOOK_AGAIN_S = 4.0
"""A message wakes an idle thread; one that comes back from a dead worker does not."""
CEILINGS = Ceilings(images=8, window_s=2.0)
SERVICE_S = {Pool.INTAKE: (0.1, 0.8), Pool.REPORTING: (0.05, 0.3)}
LATENCY = (0.3, 0.08)
"""Seconds of a batch: fixed, and for each image."""


@dataclass(frozen=True, slots=True)
class Report:
    """As much of a report as an ending asks for."""

    version: int
    kind: str
    outcome: str = "nothing_found"

    def model_dump_json(self) -> str:
        return "{}"

    def model_copy(self, *, update: dict[str, Any]) -> "Report":
        return replace(self, **update)


class Worker:
    """One process of a pool: what its threads share."""

    def __init__(self, world: World, host: Host, pool: Pool) -> None:
        self.world, self.host, self.pool = world, host, pool
        self.runtime = PoolRuntime(pool, world.app, replace_worker(world.services, host.name), *cast(Any, (None, None, None)))
        self.held: dict[UUID, int] = {}

    @property
    def ledger(self) -> Any:
        return self.runtime.services.ledger

    def keep_leases(self, _task: Task) -> Steps:
        """Say every two seconds that the process lives."""
        while True:
            yield RENEW_EVERY_S
            if self.held:
                renew_leases(self.ledger, list(self.held.items()))

    def claim(self, case_ids: Sequence[UUID], seen_no: int) -> list[Claimed]:
        cases = claim_cases(self.ledger, case_ids, pool=self.pool, worker=self.host.name, seen_no=seen_no)
        if cases:
            self.world.schedule.note(self.host.name, f"claims {[case.case_id.int for case in cases]} by {seen_no}")
        self.held.update({case.case_id: case.attempt for case in cases})
        return cases

    def let_go(self, cases: Sequence[Claimed]) -> None:
        for case in cases:
            self.held.pop(case.case_id, None)

    def may_crash(self) -> bool:
        """One of the points at which a process can die; True where it did."""
        if self.world.dice.random() >= self.world.crash_chance:
            return False
        self.world.crash(self.host)
        return True

    def trouble_of(self, case: Claimed) -> Exception | None:
        """What happens in the body of a stage, if anything; a case that kills does it here."""
        traits = self.world.traits[case.case_id]
        if traits.kills is self.pool:
            self.world.crash(self.host)
            return None
        if traits.is_rejected and self.pool is Pool.INTAKE:
            return RejectedInput("no")
        if traits.fails and self.world.dice.random() < 0.7:
            self.world.traits[case.case_id] = replace(traits, fails=traits.fails - 1)
            return ModelFailed("away")
        if traits.loses_tensors and self.pool is not Pool.INTAKE:
            self.world.traits[case.case_id] = replace(traits, loses_tensors=traits.loses_tensors - 1)
            return TensorMissing("gone")
        return None

    def is_in_time(self, case: Claimed, takes_s: float) -> bool:
        """Whether it can still be answered in time; else it is left to the guard."""
        try:
            require_time(case, takes_s + least_s_after(self.pool), self.pool.value)
        except ExpiredAtStage as error:
            self.world.schedule.note(self.host.name, f"{case.case_id.int} is too late")
            leave_for_later(self.runtime, case, error)
            return False
        return True

    def end_badly(self, case: Claimed, error: Exception) -> None:
        self.world.schedule.note(self.host.name, f"{case.case_id.int} fails: {type(error).__name__}")
        if isinstance(error, RejectedInput):
            end_with_failure(self.runtime, case, error, StageClock(case.lane))
        elif isinstance(error, Unavailable):
            put_back(self.runtime, case, error)

    def stale_of(self, cases: Sequence[Claimed]) -> set[UUID]:
        """Cases that another worker has claimed since."""
        return {case.case_id for case in cases if self.world.memory.model.cases[case.case_id].attempt != case.attempt}

    def compare(self, done: Sequence[Claimed], stood: set[UUID], stale: set[UUID]) -> None:
        """What was written under a stale claim must not count; what did not count must have a cause."""
        for case_id in sorted(stood & stale):
            self.world.trouble(f"{self.host.name} wrote {case_id.int}, which is another's")
        for case in done:
            if case.case_id not in stood:
                self.note_refused(case)

    def note_refused(self, case: Claimed) -> None:
        """A refused write has a cause: the worker stood still, or the case has ended."""
        now = self.world.memory.model.cases[case.case_id]
        of_attempt = [event for event in self.world.memory.model.events if event.case_id == case.case_id and event.attempt == case.attempt]
        claimed_at = of_attempt[0].at
        if now.is_open and self.host.last_disturbed_at < claimed_at - self.world.memory.model.limits.lease_s:
            self.world.trouble(f"{self.host.name} was robbed of {case.case_id.int} in its life")


def replace_worker(services: Services, name: str) -> Services:
    """The same services under a process's own name."""
    return replace(services, worker=name)


class CpuWorker(Worker):
    """A process of intake or reporting: threads that answer doorbells."""

    def answer_doorbells(self, task: Task) -> Steps:
        while True:
            letter = self.world.redis.take(self.pool)
            task.is_idle = letter is None
            if letter is None:
                yield LOOK_AGAIN_S
                continue
            yield from self._answer(letter)
            self.world.redis.done(letter)

    def _answer(self, letter: Letter) -> Steps:
        message = parse_message(letter.arguments)
        if message is None:
            return
        cases = self.claim(message.case_ids, message.publish_no)
        if cases and self.may_crash():
            return
        done = []
        for case in cases:
            if not self.is_in_time(case, least_s_of(self.pool)):
                continue
            yield self.world.dice.uniform(*SERVICE_S[self.pool])
            error = self.trouble_of(case)
            if not self.host.is_up:
                return
            if error:
                self.end_badly(case, error)
            else:
                done.append(case)
        if done and not self.may_crash():
            self._write(done)
        self.let_go(cases)

    def _write(self, done: Sequence[Claimed]) -> None:
        stale = self.stale_of(done)
        stood = self._report(done) if self.pool is Pool.REPORTING else self._prepare(done)
        self.world.schedule.note(self.host.name, f"writes {sorted(each.int for each in stood)}")
        self.compare(done, stood, stale)

    def _report(self, done: Sequence[Claimed]) -> set[UUID]:
        kinds = ["final" if case.result_version == 0 or case.is_preliminary else "amended" for case in done]
        reported = [Reported(case, cast(Any, Report(case.result_version + 1, kind)), {}) for case, kind in zip(done, kinds, strict=True)]
        return set(complete(self.world.app, self.runtime.services, reported).stood)

    def _prepare(self, done: Sequence[Claimed]) -> set[UUID]:
        moved: set[UUID] = set()
        for entered in (CaseState.AWAITING_INFERENCE, CaseState.AWAITING_REPORT):
            skips = entered is CaseState.AWAITING_REPORT
            group = {case.case_id: case for case in done if self.world.traits[case.case_id].needs_no_model is skips}
            items = [HandOn(case.case_id, case.attempt, {}, {}) for case in group.values()]
            rungs = hand_on(self.ledger, items, left=CaseState.FETCHING, entered=entered, worker=self.host.name) if items else []
            moved |= {rung.case_id for rung in rungs}
            if not rungs or self.may_crash():
                continue
            if skips:
                ring(self.world.app, Pool.REPORTING, rungs)
                continue
            now_s = self.runtime.services.clock.unix_s()
            places = [place_in_line(rung, accepted_at=group[rung.case_id].accepted_at, image_count=1, now_s=now_s) for rung in rungs]
            try:
                if Line(self.world.redis).join(places):
                    ring(self.world.app, Pool.INFERENCE, rungs[:1])
            except QueueUnavailable:
                self.world.schedule.note(self.host.name, "cannot reach the line")
        return moved


class Former(Worker):
    """The inference process of one device."""

    def __init__(self, world: World, host: Host) -> None:
        super().__init__(world, host, Pool.INFERENCE)
        self._feeder = Feeder(LatencyModel(*LATENCY), after_s=least_s_after(Pool.INFERENCE))
        self._idle_since: float | None = None

    @property
    def _clock(self) -> float:
        return self.runtime.services.clock.unix_s()

    def hear(self, joined: int) -> None:
        """Somebody joined the line."""
        self._feeder.arrivals.saw(joined, self._clock)

    def form_batches(self, task: Task) -> Steps:
        while True:
            try:
                chosen = self._choose()
            except QueueUnavailable:
                chosen = IDLE_S
            task.is_idle = isinstance(chosen, float)
            if isinstance(chosen, float):
                yield chosen
            else:
                yield from self._fire(*chosen)

    def _choose(self) -> tuple[Fire | LetGo, list[Waiting]] | float:
        waiting = Line(self.world.redis).head(4 * CEILINGS.images)
        decision = self._feeder.ask(waiting, CEILINGS, Devices(), now=self._clock, company=self._count_company)
        if isinstance(decision, Fire | LetGo):
            return decision, waiting
        if isinstance(decision, Hold):
            self._idle_since = self._idle_since or self.world.schedule.now
            held_s = self.world.schedule.now - self._idle_since
            if held_s > CEILINGS.window_s + IDLE_S and any(case.lane != "compensation" for case in waiting):
                self.world.trouble(f"{self.host.name} has held a line back for {held_s:.1f} s")
            return min(IDLE_S, decision.seconds)
        self._idle_since = None
        return IDLE_S

    def _count_company(self, limit: int) -> int:
        return count_cases_of(self.ledger, Pool.INTAKE, limit=limit)

    def _fire(self, decision: Fire | LetGo, waiting: Sequence[Waiting]) -> Steps:
        self._feeder.held_since = self._idle_since = None
        aboard = [waiting[place] for place in decision.members] if isinstance(decision, Fire) else []
        chosen = [*aboard, *(waiting[place] for place in decision.late)]
        self._see_to_the_lanes(chosen)
        taken = Line(self.world.redis).take([case.case_id for case in chosen])
        claimed = self.claim(taken, max(case.publish_no for case in chosen)) if taken else []
        cases = self._without_late(claimed, decision, waiting)
        self.world.schedule.note(self.host.name, f"fires {len(cases)}: {decision.reason if isinstance(decision, Fire) else 'late'}")
        if not isinstance(decision, Fire) or not cases or self.may_crash():
            return
        together, others = apart(cases)
        with suppress(Unavailable):
            send_back(self.runtime.services, cast(Any, Line(self.world.redis)), chosen, others)
        group = [case for case in together if self.is_in_time(case, decision.predicted_s)]
        if group:
            yield self._feeder.latency.seconds(len(group)) * self.world.device_factor * self.world.dice.uniform(0.8, 1.5)
            errors = {case.case_id: self.trouble_of(case) for case in group}
            if not self.host.is_up:
                return
            self._hand_on(group, errors)
        self.let_go(cases)

    def _without_late(self, cases: Sequence[Claimed], decision: Fire | LetGo, waiting: Sequence[Waiting]) -> list[Claimed]:
        """Leave to the guard whom the rule has named as late."""
        late = {waiting[place].case_id for place in decision.late}
        for case in cases:
            if case.case_id in late:
                leave_for_later(self.runtime, case, ExpiredAtStage("no batch that starts now is in time"))
        gone = [case for case in cases if case.case_id in late]
        self.let_go(gone)
        return [case for case in cases if case not in gone]

    def _see_to_the_lanes(self, chosen: Sequence[Waiting]) -> None:
        """Nobody who was put off goes while somebody urgent stays behind."""
        names = {case.case_id for case in chosen}
        stays = [case for case in self.world.redis.line.values() if case.lane == "urgent" and case.case_id not in names]
        if stays and any(case.lane == "compensation" for case in chosen):
            self.world.trouble(f"{self.host.name} runs put-off cases while {stays[0].case_id.int} is urgent and waits")

    def _hand_on(self, group: Sequence[Claimed], errors: dict[UUID, Exception | None]) -> None:
        for case in group:
            if error := errors[case.case_id]:
                self.end_badly(case, error)
        done = [case for case in group if errors[case.case_id] is None]
        if not done or self.may_crash():
            return
        stale = self.stale_of(done)
        items = [HandOn(case.case_id, case.attempt, {}, {}) for case in done]
        rungs = hand_on(
            self.ledger, items, left=POOL_STATES[Pool.INFERENCE].claimed, entered=CaseState.AWAITING_REPORT, worker=self.host.name
        )
        stood = {rung.case_id for rung in rungs}
        self.world.schedule.note(self.host.name, f"hands on {sorted(each.int for each in stood)}")
        self.compare(done, stood, stale)
        if not self.may_crash():
            ring(self.world.app, Pool.REPORTING, rungs)
