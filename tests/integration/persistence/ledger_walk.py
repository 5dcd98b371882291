"""A walk through the ledger's operations, each done to the ledger and to the model, and compared after each step."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, TypeVar
from uuid import UUID

import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant
from sqlalchemy.engine import Row

from pipeline.cases.states import POOL_STATES, CaseState, pool_of
from pipeline.errors import StaleCompletion
from pipeline.flow import Pool
from pipeline.persistence.ledger.claims import HandOn, Return, Rung, claim_cases, give_back, hand_on
from pipeline.persistence.ledger.engine import Ledger
from pipeline.persistence.ledger.outcomes import Callback, Completion, Ownership, complete_cases, fail_case
from tests.integration.persistence.answers import answer_of
from tests.integration.persistence.holdings import Holdings, check_succession, read_holdings
from tests.integration.persistence.ledger_model import Held, Model, ModelCase

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
DUE_AT = NOON + timedelta(seconds=30)
ENDPOINT = UUID(int=7)
EMPTY = "TRUNCATE cases, case_events, results, deliveries, idempotency_keys RESTART IDENTITY"

MUST_MEET = {
    ("postprocessing", "completed"),
    ("refused", "failed"),
    ("stale in a group", "intake"),
    ("rung", "freed"),
}
"""Edges, refusals and stale claims that a run must come by."""

Known = TypeVar("Known")


def of(known: Sequence[Known], pick: int) -> Known:
    """One of those that there are."""
    return known[pick % len(known)]


def held_by_row(row: Row[Any]) -> tuple[Any, ...]:
    """A row's part in the comparison."""
    is_lapsed, is_delayed = bool(row.is_lapsed), row.due_at > row.published_at
    what = (row.state, row.attempt, row.tries, row.strikes, row.claimed_by, is_lapsed)
    return (*what, row.version, row.result_version, row.publish_no, is_delayed)


def held_by_model(case: ModelCase) -> tuple[Any, ...]:
    """The same of a case of the model."""
    what = (case.state.value, case.attempt, case.tries, case.strikes, case.holder, case.is_lapsed)
    return (*what, case.version, case.result_version, case.publish_no, case.is_delayed)


class LedgerWalk(RuleBasedStateMachine):
    """What the rules share: the ledger, the model, and the comparison of both."""

    ledger: ClassVar[Ledger]
    met: ClassVar[set[tuple[str, str]]] = set()
    """Edges walked and refusals met, by all examples together."""

    def __init__(self) -> None:
        super().__init__()
        with self.ledger.relaxed.connect() as connection:
            connection.exec_driver_sql(EMPTY)
        self.model = Model()
        self.last_id = 0
        self.before: Holdings | None = None

    # What must hold after each step

    @invariant()
    def ledger_and_model_hold_the_same(self) -> None:
        now = read_holdings(self.ledger)
        now.check()
        if self.before is not None:
            check_succession(self.before, now)
        self.before = now
        self.met.update(now.met())
        assert {case_id: held_by_row(row) for case_id, row in now.cases.items()} == {
            case_id: held_by_model(case) for case_id, case in self.model.cases.items()
        }

    # What the rules share

    def new_id(self) -> UUID:
        self.last_id += 1
        return UUID(int=self.last_id)

    def callback(self) -> Callback:
        return Callback(self.new_id(), ENDPOINT, "case.ended", "{}")

    def claim_for(self, worker: str, pool: Pool, asked: Sequence[UUID]) -> list[Held]:
        """Claim, and return what is held now."""
        claimed = claim_cases(self.ledger, asked, pool=pool, worker=worker, seen_no=self.model.newest_no)
        expected = self.model.claim(asked, pool, worker)
        assert [each.case_id for each in claimed] == expected
        assert [(each.attempt, each.tries) for each in claimed] == [
            (self.model.cases[each].attempt, self.model.cases[each].tries) for each in expected
        ]
        return [Held(each.case_id, each.attempt, pool, worker) for each in claimed]

    def note_rung(self, why: str, rungs: Sequence[Rung], expected: set[UUID]) -> None:
        """Compare who was rung."""
        assert self.model.rung(rungs) == expected
        if rungs:
            self.met.add(("rung", why))

    def answer(self, worker: str, pick: int) -> list[Held]:
        """Claim, for its pool, an open case and those beside it; return what is held now."""
        state = self.model.cases[of(self.model.open_ids(), pick)].state
        alike = [case_id for case_id in self.model.open_ids() if self.model.cases[case_id].state is state]
        return self.claim_for(worker, pool_of(state) or Pool.INTAKE, alike)

    def give_group_back(self, group: Sequence[Held], why: Return) -> None:
        """Return a group of one pool to a queue."""
        worker = group[0].worker
        self.note_refusals(group)
        rungs = give_back(self.ledger, [(held.case_id, held.attempt) for held in group], why, worker=worker)
        expected = self.model.give_back(group, why, worker)
        assert self.model.rung(rungs, is_delayed=why.delay_s > 0) == expected

    def hand_group_on(self, group: Sequence[Held], entered: CaseState) -> None:
        """Move a group of one pool to the next queue."""
        done = [HandOn(held.case_id, held.attempt, {}, {}) for held in group]
        self.note_refusals(group)
        rungs = hand_on(self.ledger, done, left=POOL_STATES[group[0].pool].claimed, entered=entered, worker=group[0].worker)
        expected = self.model.hand_on(group, entered)
        assert self.model.rung(rungs) == expected

    def complete_group(self, group: Sequence[Held], version: int) -> None:
        """End a group with results."""
        done = [Completion(held.case_id, held.attempt, answer_of(held.case_id, version), {}, self.callback()) for held in group]
        self.note_refusals(group)
        written = complete_cases(self.ledger, done, left=CaseState.POSTPROCESSING, worker=group[0].worker)
        assert (written.ended, written.foreign) == (self.model.complete(group, version), set())

    def holds_any(self, *pools: Pool) -> bool:
        return any(held.pool in pools for held in self.model.claims)

    def group(self, picks: list[int], pools: set[Pool], *, is_one_pool: bool = True) -> list[Held]:
        """Some claims, the stale among them; those of one doorbell are of one pool."""
        known = [held for held in reversed(self.model.claims) if held.pool in pools]
        lead = of(known, picks[0])
        alike = [held for held in known if held.pool is lead.pool] if is_one_pool else known
        picked = [lead, *(of(alike, pick) for pick in picks[1:])]
        return list({held.case_id: held for held in reversed(picked)}.values())[::-1]

    def note_refusals(self, group: Sequence[Held]) -> None:
        self.met.update(("stale" if len(group) == 1 else "stale in a group", held.pool) for held in group if not self.model.stands(held))

    def write_failure(self, owner: Ownership, told: Callback) -> None:
        fail_case(self.ledger, owner, {"code": "x"}, timeline={}, callback=told)

    def end(self, case_id: UUID, entered: CaseState, seen: tuple[int, CaseState], write: Callable[[Callback], None]) -> None:
        """End a case if it is as it was seen; else the ledger must refuse."""
        case = self.model.cases[case_id]
        if (case.attempt, case.state) == seen:
            write(self.callback())
            case.move(entered)
        else:
            self.met.add(("refused", entered))
            with pytest.raises(StaleCompletion):
                write(self.callback())
