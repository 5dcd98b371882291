"""What the ledger should hold: its operations on plain values, by the rules in words and not by its statements."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from pipeline.cases.states import POOL_STATES, TERMINAL, CaseState, PoolStates
from pipeline.flow import Pool
from pipeline.persistence.ledger.claims import Return, Rung

MAX_TRIES = 2
MOST_ATTEMPTS = 4
"""Fewer than the product's, so that a short walk comes to them."""
OVERTAKEN_BY = 3


@dataclass(frozen=True, slots=True)
class Held:
    """What a worker believes that it holds; it never hears that another has it now."""

    case_id: UUID
    attempt: int
    pool: Pool
    worker: str


@dataclass(slots=True)
class ModelCase:
    """One case."""

    publish_no: int
    fingerprint: bytes
    state: CaseState = CaseState.ACCEPTED
    attempt: int = 0
    tries: int = 0
    strikes: int = 0
    holder: str | None = None
    is_lapsed: bool = False
    version: int = 1
    result_version: int = 0
    is_old: bool = False
    """Its doorbell was published long ago."""
    is_delayed: bool = False
    """Its doorbell was to be rung later than it was published."""

    @property
    def is_due_retry(self) -> bool:
        """It was given back with a delay that is over; nobody has rung for it."""
        return self.is_delayed and self.is_old

    def is_free_for(self, states: PoolStates) -> bool:
        """Whether it waits for the pool, or its worker there gave no sign of life."""
        return self.state is states.queued or self.is_lapsed_in(states)

    def is_to_claim_for(self, states: PoolStates) -> bool:
        """The same, without what waits for its retry to be rung."""
        return (self.state is states.queued and not self.is_delayed) or self.is_lapsed_in(states)

    def is_lapsed_in(self, states: PoolStates) -> bool:
        return self.state is states.claimed and self.is_lapsed

    def move(self, entered: CaseState, *, steps: int = 1) -> None:
        """Enter a state; nobody holds it there."""
        self.state, self.holder, self.is_lapsed = entered, None, False
        self.version += steps


@dataclass(slots=True)
class Model:
    """All cases, keys and claims."""

    cases: dict[UUID, ModelCase] = field(default_factory=dict)
    keys: dict[str, UUID] = field(default_factory=dict)
    claims: list[Held] = field(default_factory=list)
    newest_no: int = 0

    def claim(self, asked: Sequence[UUID], pool: Pool, worker: str) -> list[UUID]:
        """Take what is free and has tries left, in the order asked."""
        states = POOL_STATES[pool]
        taken = [each for each in dict.fromkeys(asked) if self.cases[each].is_to_claim_for(states) and self.cases[each].tries < MAX_TRIES]
        for case_id in taken:
            case = self.cases[case_id]
            case.strikes += case.is_lapsed
            case.move(states.claimed, steps=2 if case.is_lapsed else 1)
            case.attempt, case.tries, case.holder = case.attempt + 1, case.tries + 1, worker
            self.claims.append(Held(case_id, case.attempt, pool, worker))
        return taken

    def stands(self, held: Held) -> bool:
        """Whether nobody has claimed, moved or ended the case since."""
        case = self.cases[held.case_id]
        return case.attempt == held.attempt and case.state is POOL_STATES[held.pool].claimed

    def hand_on(self, group: Sequence[Held], entered: CaseState) -> set[UUID]:
        """Move what stands to the next queue."""
        standing = [held for held in group if self.stands(held)]
        for held in standing:
            self.cases[held.case_id].move(entered)
            self.cases[held.case_id].tries = self.cases[held.case_id].strikes = 0
        return {held.case_id for held in standing}

    def give_back(self, group: Sequence[Held], why: Return, worker: str) -> set[UUID]:
        """Return what stands and is this worker's; the last attempt of all costs the rest of the tries, if it is charged."""
        standing = [held for held in group if self.stands(held) and self.cases[held.case_id].holder == worker]
        for held in standing:
            case = self.cases[held.case_id]
            case.move(why.entered)
            case.strikes += why.is_strike
            if why.is_free:
                case.tries -= 1
            elif case.attempt >= MOST_ATTEMPTS:
                case.tries = MAX_TRIES
        return {held.case_id for held in standing}

    def complete(self, group: Sequence[Held], version: int) -> set[UUID]:
        """End with a result what stands and has not had this version."""
        standing = [held for held in group if self.stands(held) and self.cases[held.case_id].result_version == version - 1]
        for held in standing:
            case = self.cases[held.case_id]
            case.move(CaseState.COMPLETED)
            case.tries, case.result_version = 0, version
        return {held.case_id for held in standing}

    def renew(self, group: Sequence[Held]) -> set[UUID]:
        """A sign of life: also after the lease ran out, as long as nobody took the case."""
        alive = {
            held.case_id
            for held in group
            if self.cases[held.case_id].attempt == held.attempt and self.cases[held.case_id].holder is not None
        }
        for case_id in alive:
            self.cases[case_id].is_lapsed = False
        return alive

    def free(self, pool: Pool) -> set[UUID]:
        """Put back what lapsed and has tries left."""
        states = POOL_STATES[pool]
        lapsed = {each for each, case in self.cases.items() if case.is_lapsed_in(states) and case.tries < MAX_TRIES}
        for case_id in lapsed:
            self.cases[case_id].move(states.queued)
            self.cases[case_id].strikes += 1
        return lapsed

    def spent(self, pool: Pool) -> set[UUID]:
        """What nobody may claim any more."""
        states = POOL_STATES[pool]
        return {each for each, case in self.cases.items() if case.is_free_for(states) and case.tries >= MAX_TRIES}

    def waiting(self, pool: Pool) -> dict[UUID, ModelCase]:
        """Cases that wait for the pool and have tries left."""
        queued = POOL_STATES[pool].queued
        return {each: case for each, case in self.cases.items() if case.state is queued and case.tries < MAX_TRIES}

    def rung(self, rungs: Iterable[Rung], *, is_delayed: bool = False) -> set[UUID]:
        """Note fresh doorbells; each must have a number above all before it."""
        before = self.newest_no
        for each in rungs:
            assert each.publish_no > before, f"doorbell {each.publish_no} came after {before}"
            case = self.cases[each.case_id]
            assert each.attempt == case.attempt, f"doorbell of attempt {each.attempt}, case at {case.attempt}"
            case.publish_no, case.is_old, case.is_delayed = each.publish_no, False, is_delayed
            self.newest_no = max(self.newest_no, each.publish_no)
        return {each.case_id for each in rungs}

    def open_ids(self) -> list[UUID]:
        """Cases that have not ended."""
        return [each for each, case in self.cases.items() if case.state not in TERMINAL]
