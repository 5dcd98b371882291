"""The ledger against a model of it: whatever clients, workers and sweepers do in whatever order, both hold the same.

The ordinary run walks the same 140 ways of 40 steps each time. `SECONDREAD_TEST_EXAMPLES=5000` walks so many new ones; a way that
fails is shortened and printed, with the line that repeats it.
"""

import os
from functools import partial

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test
from sqlalchemy import text

from pipeline.cases.retries import MOST_TOKENS
from pipeline.cases.states import POOL_STATES, CaseState
from pipeline.flow import Lane, Pool
from pipeline.persistence.ledger import claims, sweep
from pipeline.persistence.ledger.admission import Accepted, KeyReused, NewCase, accept_cases
from pipeline.persistence.ledger.claims import Return, renew_leases
from pipeline.persistence.ledger.engine import Ledger, run
from pipeline.persistence.ledger.outcomes import Ownership, cancel_case
from pipeline.persistence.ledger.retries import change_budgets
from schemas.work import CaseInput
from tests.integration.persistence.ledger_model import MAX_TRIES, MOST_ATTEMPTS, OVERTAKEN_BY, ModelCase
from tests.integration.persistence.ledger_walk import DUE_AT, ENDPOINT, MUST_MEET, NOON, LedgerWalk, of

pytestmark = pytest.mark.services

ASKED = os.environ.get("SECONDREAD_TEST_EXAMPLES")
EXAMPLES = int(ASKED or 140)
LONG_S = 3600.0
"""Time passes where a rule lets it pass, however slow the machine is."""

WORKERS = st.sampled_from(["w1", "w2", "w3"])
POOLS = st.sampled_from(list(POOL_STATES))
PICK = st.integers(0, 11)
PICKS = st.lists(PICK, min_size=1, max_size=4)
ONWARD = {Pool.INTAKE: CaseState.AWAITING_INFERENCE, Pool.INFERENCE: CaseState.AWAITING_REPORT}
LAPSE = text("UPDATE cases SET lease_until = clock_timestamp() - interval '1 ms' WHERE id = ANY(:ids) AND lease_until IS NOT NULL")
AGE = text("UPDATE cases SET published_at = published_at - interval '2 h', due_at = due_at - interval '2 h' WHERE id = ANY(:ids)")


class LedgerMachine(LedgerWalk):
    """Every rule does one thing to the ledger and to the model, and compares what was said of it."""

    @initialize(ways=st.lists(st.integers(0, 2), min_size=2, max_size=4))
    def begin_with_some_on_their_way(self, ways: list[int]) -> None:
        self.submit_all([(key, b"a") for key in range(len(ways))])
        for case_id, length in zip(list(self.model.cases), ways, strict=True):
            for pool in list(POOL_STATES)[:length]:
                self.hand_group_on(self.claim_for("w1", pool, [case_id]), ONWARD[pool])

    # Clients

    @rule(asked=st.lists(st.tuples(st.integers(0, 7), st.sampled_from([b"a", b"a", b"b"])), min_size=1, max_size=4))
    def submit(self, asked: list[tuple[int, bytes]]) -> None:
        self.submit_all(asked)

    def submit_all(self, asked: list[tuple[int, bytes]]) -> None:
        brought = [NewCase(self.new_id(), ENDPOINT, Lane.ROUTINE, CaseInput(instances=()), NOON, DUE_AT, str(k), f) for k, f in asked]
        for new, answer in zip(brought, accept_cases(self.ledger, brought), strict=True):
            known = self.model.keys.get(new.idempotency_key)
            if known is None:
                assert isinstance(answer, Accepted)
                assert answer == Accepted(new.id, answer.publish_no, DUE_AT, is_replay=False)
                assert answer.publish_no > self.model.newest_no
                self.model.keys[new.idempotency_key] = new.id
                self.model.cases[new.id] = ModelCase(answer.publish_no, new.fingerprint)
            elif self.model.cases[known].fingerprint == new.fingerprint:
                assert answer == Accepted(known, self.model.cases[known].publish_no, DUE_AT, is_replay=True)
            else:
                assert isinstance(answer, KeyReused)
        self.model.newest_no = max(case.publish_no for case in self.model.cases.values())

    @precondition(lambda self: self.model.open_ids())
    @rule(pick=PICK, is_late=st.booleans())
    def cancel(self, pick: int, is_late: bool) -> None:
        case_id = of(self.model.open_ids(), pick)
        case = self.model.cases[case_id]
        seen = (0, CaseState.ACCEPTED) if is_late else (case.attempt, case.state)
        owner = Ownership(case_id, *seen)
        self.end(case_id, CaseState.CANCELLED, seen, lambda told: cancel_case(self.ledger, owner, callback=told))

    # Workers

    @precondition(lambda self: self.model.cases)
    @rule(worker=WORKERS, pool=POOLS, picks=PICKS)
    def claim(self, worker: str, pool: Pool, picks: list[int]) -> None:
        self.claim_for(worker, pool, list(dict.fromkeys(of(list(self.model.cases), pick) for pick in picks)))

    @precondition(lambda self: self.model.open_ids())
    @rule(worker=WORKERS, pick=PICK)
    def answer_doorbell(self, worker: str, pick: int) -> None:
        self.answer(worker, pick)

    @precondition(lambda self: self.model.open_ids())
    @rule(worker=WORKERS, pick=PICK)
    def work_through(self, worker: str, pick: int) -> None:
        group = self.answer(worker, pick)
        if group and group[0].pool is Pool.REPORTING:
            self.complete_group(group, 1)
        elif group:
            self.hand_group_on(group, ONWARD[group[0].pool])

    @precondition(lambda self: self.model.claims)
    @rule(picks=PICKS)
    def renew(self, picks: list[int]) -> None:
        group = self.group(picks, set(POOL_STATES), is_one_pool=False)
        renewed = renew_leases(self.ledger, [(held.case_id, held.attempt) for held in group])
        assert renewed == self.model.renew(group)

    @precondition(lambda self: self.holds_any(Pool.INTAKE, Pool.INFERENCE))
    @rule(picks=PICKS, skips=st.booleans())
    def hand_on(self, picks: list[int], skips: bool) -> None:
        group = self.group(picks, {Pool.INTAKE, Pool.INFERENCE})
        to_inference = group[0].pool is Pool.INTAKE and not skips
        self.hand_group_on(group, CaseState.AWAITING_INFERENCE if to_inference else CaseState.AWAITING_REPORT)

    @precondition(lambda self: self.holds_any(Pool.REPORTING))
    @rule(picks=PICKS, version=st.sampled_from([1, 1, 1, 2]))
    def complete(self, picks: list[int], version: int) -> None:
        self.complete_group(self.group(picks, {Pool.REPORTING}), version)

    @precondition(lambda self: self.model.claims)
    @rule(pick=PICK)
    def fail(self, pick: int) -> None:
        held = self.model.claims[-1 - pick % len(self.model.claims)]
        left = POOL_STATES[held.pool].claimed
        owner = Ownership(held.case_id, held.attempt, left, held.worker)
        self.end(held.case_id, CaseState.FAILED, (held.attempt, left), partial(self.write_failure, owner))

    @precondition(lambda self: self.model.claims)
    @rule(picks=PICKS, to_intake=st.booleans(), is_delayed=st.booleans(), charge=st.sampled_from(["try", "strike", "free"]))
    def give_back(self, picks: list[int], to_intake: bool, is_delayed: bool, charge: str) -> None:
        group = self.group(picks, set(POOL_STATES))
        states = POOL_STATES[group[0].pool]
        entered, delay_s = CaseState.ACCEPTED if to_intake else states.queued, LONG_S if is_delayed else 0.0
        why = Return(states.claimed, entered, "x", delay_s, is_free=charge == "free", is_strike=charge == "strike")
        self.give_group_back(group, why)

    @precondition(lambda self: self.model.open_ids())
    @rule(worker=WORKERS, pick=PICK)
    def try_in_vain(self, worker: str, pick: int) -> None:
        group = self.answer(worker, pick)
        if group:
            states = POOL_STATES[group[0].pool]
            self.give_group_back(group, Return(states.claimed, states.queued, "x"))

    # Time

    @precondition(lambda self: any(case.holder for case in self.model.cases.values()))
    @rule(pick=PICK)
    def lapse(self, pick: int) -> None:
        self.lapse_one(pick)

    def lapse_one(self, pick: int) -> None:
        worker = of([case.holder for case in self.model.cases.values() if case.holder], pick)
        lapsed = [case_id for case_id, case in self.model.cases.items() if case.holder == worker]
        run(self.ledger.relaxed, LAPSE, ids=lapsed)
        for case_id in lapsed:
            self.model.cases[case_id].is_lapsed = True

    @precondition(lambda self: self.model.open_ids())
    @rule(picks=PICKS)
    def age(self, picks: list[int]) -> None:
        aged = {of(self.model.open_ids(), pick) for pick in picks}
        run(self.ledger.relaxed, AGE, ids=list(aged))
        for case_id in aged:
            self.model.cases[case_id].is_old = True

    # The sweeper

    @rule(dies=st.booleans(), pick=PICK)
    def free_expired(self, dies: bool, pick: int) -> None:
        if dies and any(case.holder for case in self.model.cases.values()):
            self.lapse_one(pick)
        for pool in POOL_STATES:
            rungs = sweep.free_expired(self.ledger, pool, limit=100)
            self.note_rung("freed", rungs, self.model.free(pool))
        self.find_spent()

    @rule()
    def ring_overtaken(self) -> None:
        for pool in POOL_STATES:
            seen_no = self.model.newest_no
            waiting = self.model.waiting(pool).items()
            expected = {each for each, case in waiting if case.is_old and not case.is_delayed and case.publish_no < seen_no - OVERTAKEN_BY}
            rungs = sweep.ring_overtaken(self.ledger, pool, seen_nos=dict.fromkeys(Lane, seen_no), limit=100)
            self.note_rung("overtaken", rungs, expected)

    @rule()
    def ring_all(self) -> None:
        for pool in POOL_STATES:
            expected = {each for each, case in self.model.waiting(pool).items() if case.is_old and not case.is_delayed}
            rungs = sweep.ring_all(self.ledger, pool, up_to_no=self.model.newest_no, limit=100)
            self.note_rung("all", rungs, expected)

    @rule()
    def ring_due(self) -> None:
        change_budgets(self.ledger, dict.fromkeys(POOL_STATES, MOST_TOKENS))
        for pool in POOL_STATES:
            expected = {each for each, case in self.model.waiting(pool).items() if case.is_due_retry}
            self.note_rung("due", sweep.ring_due(self.ledger, pool, limit=100), expected)

    @precondition(lambda self: any(self.model.spent(pool) for pool in POOL_STATES))
    @rule()
    def quarantine(self) -> None:
        for spent in self.find_spent():
            owner = Ownership(spent.case_id, spent.attempt, CaseState(spent.state))
            self.met.add(("spent", owner.left))
            self.end(spent.case_id, CaseState.FAILED, (owner.attempt, owner.left), partial(self.write_failure, owner))

    def find_spent(self) -> list[sweep.Spent]:
        found = [sweep.find_spent(self.ledger, pool, limit=100) for pool in POOL_STATES]
        assert [{each.case_id for each in of_pool} for of_pool in found] == [self.model.spent(pool) for pool in POOL_STATES]
        return [each for of_pool in found for each in of_pool]


@pytest.fixture
def machine(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> type[LedgerMachine]:
    """The machine on the empty ledger, where only rules let time pass, and few tries are many."""
    for room, name, value in (
        (claims, "LEASE_S", LONG_S),
        (claims, "MAX_TRIES", MAX_TRIES),
        (claims, "MOST_ATTEMPTS", MOST_ATTEMPTS),
        (sweep, "MAX_TRIES", MAX_TRIES),
        (sweep, "OVERTAKEN_BY", OVERTAKEN_BY),
        (sweep, "OVERTAKEN_AFTER_S", LONG_S),
        (sweep, "SETTLE_S", LONG_S),
    ):
        monkeypatch.setattr(room, name, value)
    monkeypatch.setattr(LedgerMachine, "ledger", ledger, raising=False)
    monkeypatch.setattr(LedgerMachine, "met", set())
    return LedgerMachine


@pytest.mark.timeout(240 + EXAMPLES)
def test_whatever_happens_in_whatever_order_the_ledger_holds_what_it_should(machine: type[LedgerMachine]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=40,
            deadline=None,
            print_blob=True,
            derandomize=ASKED is None,
            database=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )

    # Else it has agreed about little.
    assert machine.met >= MUST_MEET
