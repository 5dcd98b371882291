"""A walk through the ledger's operations, each done to the ledger and to the model, and compared after each step."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, TypeVar
from uuid import UUID

import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant

from pipeline.cases.states import POOL_STATES, CaseState, pool_of
from pipeline.errors import StaleCompletion
from pipeline.flow import Lane, Pool
from pipeline.persistence.ledger.admission import Accepted, KeyReused, NewCase, accept_cases
from pipeline.persistence.ledger.claims import HandOn, Return, Rung, claim_cases, give_back, hand_on
from pipeline.persistence.ledger.engine import Ledger
from pipeline.persistence.ledger.outcomes import Answer, Callback, Completion, Ownership, complete_cases, fail_case
from schemas.work import CaseInput
from tests.integration.persistence.holdings import Holdings, body_of, check_succession, read_holdings
from tests.ledger_model.model import Model
from tests.ledger_model.rows import Held, Limits, ModelCase, Result

LONG_S = 3600.0
"""Time passes where a rule lets it pass, however slow the machine is."""
LIMITS = Limits(
    lease_s=LONG_S,
    max_tries=2,
    most_attempts=4,
    most_compensation_attempts=2,
    overtaken_by=3,
    overtaken_after_s=LONG_S,
    settle_s=LONG_S,
)
"""Fewer tries than the product gives, so that a short walk comes to their end."""
FAR_S, DEADLINE_S = 1e9, 100 * LONG_S
FAR = datetime(2126, 1, 2, tzinfo=UTC)
"""A case is accepted so late that only a rule brings its deadline near."""
TENANT, ENDPOINT = UUID(int=5), UUID(int=7)
EMPTY = "TRUNCATE cases, case_events, results, deliveries, idempotency_keys RESTART IDENTITY"

Known = TypeVar("Known")


def of(known: Sequence[Known], pick: int) -> Known:
    """One of those that there are."""
    return known[pick % len(known)]


def held_by_ledger(now: Holdings, case_id: UUID) -> tuple[Any, ...]:
    """What the ledger holds of a case, as far as the comparison goes."""
    row = now.cases[case_id]
    events = [
        (event.version, event.left_state, event.entered_state, event.attempt, event.worker, event.code, event.publish_no)
        for event in now.events[case_id]
    ]
    results = [(result.version, result.kind, result.outcome, result.attempt) for result in now.results[case_id]]
    return (
        (row.state, row.lane, row.attempt, row.tries, row.strikes, row.claimed_by, bool(row.is_lapsed), row.version, row.publish_no),
        (row.result_version, row.is_preliminary, row.is_delayed, row.is_resting),
        (row.compensation_attempts, row.worklist_at is not None, row.deferred_because),
        (events, results, sorted((each.event_type, each.state) for each in now.callbacks[case_id])),
    )


def held_by_model(model: Model, case: ModelCase) -> tuple[Any, ...]:
    """The same of a case of the model."""
    events = [
        (event.version, event.left, event.entered, event.attempt, event.worker, event.code, event.publish_no)
        for event in model.events
        if event.case_id == case.case_id
    ]
    results = [(result.version, result.kind, result.outcome, result.attempt) for result in case.results]
    return (
        (case.state, case.lane, case.attempt, case.tries, case.strikes, case.holder, model.is_lapsed(case), case.version, case.publish_no),
        (case.result_version, case.is_preliminary, case.is_delayed, case.due_at > model.now),
        (case.compensation_attempts, case.worklist_at is not None, case.reason),
        (events, results, sorted(case.callbacks)),
    )


class LedgerWalk(RuleBasedStateMachine):
    """What the rules share: the ledger, the model, and the comparison of both."""

    ledger: ClassVar[Ledger]
    met: ClassVar[set[tuple[str, str]]] = set()
    """Edges walked and refusals met, by all examples together."""

    def __init__(self) -> None:
        super().__init__()
        with self.ledger.relaxed.connect() as connection:
            connection.exec_driver_sql(EMPTY)
        self.model = Model(LIMITS)
        self.claims: list[Held] = []
        """What all workers have ever believed to hold."""
        self.newest_no = self.last_id = 0
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
        assert now.cases.keys() == self.model.cases.keys()
        for case_id, case in self.model.cases.items():
            assert held_by_ledger(now, case_id) == held_by_model(self.model, case)

    # What the rules share

    def new_id(self) -> UUID:
        self.last_id += 1
        return UUID(int=self.last_id)

    def callback(self, event_type: str = "case.ended") -> Callback:
        return Callback(self.new_id(), ENDPOINT, event_type, "{}")

    def submit_all(self, asked: Sequence[tuple[int, bytes, Lane]]) -> None:
        brought = [self._new_case(key, fingerprint, lane) for key, fingerprint, lane in asked]
        for new, answer in zip(brought, accept_cases(self.ledger, brought), strict=True):
            accepted_s = FAR_S + (new.accepted_at - FAR).total_seconds()
            times = {"accepted_at": accepted_s, "deadline_at": accepted_s + DEADLINE_S}
            case, what = self.model.accept(new.id, new.lane, key=new.idempotency_key, fingerprint=new.fingerprint, **times)
            if what == "reused":
                assert isinstance(answer, KeyReused)
                continue
            assert isinstance(answer, Accepted)
            assert (answer.case_id, answer.is_replay) == (case.case_id, what == "replay")
            if what == "replay":
                assert answer.publish_no == case.publish_no
            else:
                self.note_numbers([Rung(case.case_id, answer.publish_no, 0, new.lane, answer.deadline_at)])

    def _new_case(self, key: int, fingerprint: bytes, lane: Lane) -> NewCase:
        case_id = self.new_id()
        accepted_at = FAR + timedelta(seconds=self.last_id)
        deadline_at = accepted_at + timedelta(seconds=DEADLINE_S)
        return NewCase(case_id, TENANT, lane, CaseInput(instances=()), accepted_at, deadline_at, str(key), fingerprint)

    def note_numbers(self, rungs: Iterable[Rung]) -> None:
        """Take over the numbers of fresh doorbells; each must be above all before it and speak of the case as it is."""
        before = self.newest_no
        for each in rungs:
            assert each.publish_no > before, f"doorbell {each.publish_no} came after {before}"
            case = self.model.cases[each.case_id]
            assert (each.attempt, each.lane) == (case.attempt, case.lane)
            case.publish_no = each.publish_no
            self.newest_no = self.model.newest_no = max(self.newest_no, each.publish_no)

    def compare_rung(self, why: str, rungs: Sequence[Rung], expected: Iterable[UUID]) -> None:
        """Compare who was rung."""
        assert {each.case_id for each in rungs} == set(expected)
        self.note_numbers(rungs)
        if rungs:
            self.met.add(("rung", why))

    def claim_for(self, worker: str, pool: Pool, asked: Sequence[UUID]) -> list[Held]:
        """Claim, and return what is held now."""
        seen_no = self.newest_no
        claimed = claim_cases(self.ledger, asked, pool=pool, worker=worker, seen_no=seen_no)
        expected = [self.model.cases[each] for each in self.model.claim(asked, pool, worker, seen_no=seen_no)]
        assert [(each.case_id, each.attempt, each.tries, each.lane) for each in claimed] == [
            (case.case_id, case.attempt, case.tries, case.lane) for case in expected
        ]
        held = [Held(each.case_id, each.attempt, pool, worker) for each in claimed]
        self.claims.extend(held)
        return held

    def waiting_for(self, pool: Pool) -> list[UUID]:
        """The cases in a pool's queue."""
        return [each for each in self.model.open_ids() if self.model.cases[each].state is POOL_STATES[pool].queued]

    def answer(self, worker: str, pick: int) -> list[Held]:
        """Claim, for its pool, an open case and those beside it; return what is held now."""
        state = self.model.cases[of(self.model.open_ids(), pick)].state
        alike = [case_id for case_id in self.model.open_ids() if self.model.cases[case_id].state is state]
        return self.claim_for(worker, pool_of(state) or Pool.INTAKE, alike)

    def give_group_back(self, group: Sequence[Held], why: Return) -> None:
        """Return a group of one pool to a queue."""
        worker, holds = group[0].worker, [(held.case_id, held.attempt) for held in group]
        self.note_refusals(group)
        rungs = give_back(self.ledger, holds, why, worker=worker)
        self.compare_rung("given back", rungs, self.model.give_back(holds, why, worker=worker))

    def hand_group_on(self, group: Sequence[Held], entered: CaseState) -> None:
        """Move a group of one pool to the next queue."""
        done = [HandOn(held.case_id, held.attempt, {}, {}) for held in group]
        left, worker = POOL_STATES[group[0].pool].claimed, group[0].worker
        self.note_refusals(group)
        rungs = hand_on(self.ledger, done, left=left, entered=entered, worker=worker)
        holds = [(held.case_id, held.attempt) for held in group]
        self.compare_rung("handed on", rungs, self.model.hand_on(holds, left=left, entered=entered, worker=worker))

    def complete_group(self, group: Sequence[Held], after: int) -> None:
        """End a group with results, each the version after the one that stands, or after another."""
        versions = [self.model.cases[held.case_id].result_version + after for held in group]
        done = [
            Completion(
                held.case_id,
                held.attempt,
                Answer(version, "final", "nothing_found", body_of(held.case_id, held.attempt)),
                {},
                self.callback(),
            )
            for held, version in zip(group, versions, strict=True)
        ]
        answers = [Result(version, "final", "nothing_found", 0, 0.0) for version in versions]
        expected = [(held.case_id, held.attempt, answer) for held, answer in zip(group, answers, strict=True)]
        left, worker = CaseState.POSTPROCESSING, group[0].worker
        self.note_refusals(group)
        written = complete_cases(self.ledger, done, left=left, worker=worker)
        assert (written.ended, written.foreign) == (self.model.complete(expected, left=left, worker=worker), set())

    def holds_any(self, *pools: Pool) -> bool:
        return any(held.pool in pools for held in self.claims)

    def group(self, picks: list[int], pools: set[Pool], *, is_one_pool: bool = True) -> list[Held]:
        """Some claims, the stale among them; those of one doorbell are of one pool."""
        known = [held for held in reversed(self.claims) if held.pool in pools]
        lead = of(known, picks[0])
        alike = [held for held in known if held.pool is lead.pool] if is_one_pool else known
        picked = [lead, *(of(alike, pick) for pick in picks[1:])]
        return list({held.case_id: held for held in reversed(picked)}.values())[::-1]

    def note_refusals(self, group: Sequence[Held]) -> None:
        stale = [held for held in group if not self.model.stands(held.case_id, held.attempt, POOL_STATES[held.pool].claimed)]
        self.met.update(("stale" if len(group) == 1 else "stale in a group", held.pool) for held in stale)

    def write_failure(self, owner: Ownership, told: Callback) -> None:
        fail_case(self.ledger, owner, {"code": "x"}, timeline={}, callback=told)

    def end(self, owner: Ownership, entered: CaseState, code: str, write: Callable[[Callback], None]) -> None:
        """End a case if it is as it was seen; else the ledger must refuse."""
        hold = (owner.case_id, owner.attempt)
        if self.model.end_as(hold, left=owner.left, entered=entered, code=code, worker=owner.worker):
            write(self.callback())
        else:
            self.met.add(("refused", entered))
            with pytest.raises(StaleCompletion):
                write(self.callback())
