"""The ledger against a model of it: whatever clients, workers, sweepers and guards do in whatever order, both hold the same.

The ordinary run walks the same ways of 40 steps each time. `SECONDREAD_TEST_EXAMPLES=5000` walks so many new ones; a way that
fails is shortened and printed, with the line that repeats it. `python -m tests.integration.persistence.mutations` shows what
the walks notice.
"""

import os
from collections.abc import Sequence
from functools import partial

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from pipeline.cases.retries import MOST_TOKENS
from pipeline.cases.states import POOL_STATES, CaseState
from pipeline.flow import Lane, Pool
from pipeline.persistence.ledger import claims, compensation, sweep
from pipeline.persistence.ledger.claims import Return, renew_leases
from pipeline.persistence.ledger.engine import Ledger
from pipeline.persistence.ledger.outcomes import Ownership, cancel_case
from pipeline.persistence.ledger.retries import change_budgets
from tests.integration.persistence.clock_rules import FEW_OR_ALL, PICK, PICKS, ClockRules
from tests.integration.persistence.ledger_walk import LIMITS, LONG_S, of
from tests.ledger_model.rows import Held

pytestmark = pytest.mark.services

ASKED = os.environ.get("SECONDREAD_TEST_EXAMPLES")
EXAMPLES = int(ASKED or 90)
SHRINKS = os.environ.get("SECONDREAD_TEST_SHRINK") != "no"
"""Whether a failing walk is made shorter: not for who only wants to know that one fails."""

WORKERS = st.sampled_from(["w1", "w2", "w3"])
POOLS = st.sampled_from(list(POOL_STATES))
LANES = st.sampled_from([Lane.URGENT, Lane.ROUTINE])
ONWARD = {Pool.INTAKE: CaseState.AWAITING_INFERENCE, Pool.INFERENCE: CaseState.AWAITING_REPORT}
PUT_OFF = 3
"""A way to begin that ends in the compensation queue, not in one of the three pools' queues."""

MUST_MEET = {
    ("postprocessing", "completed"),
    ("refused", "failed"),
    ("stale in a group", "intake"),
    ("rung", "freed"),
    ("rung", "overtaken"),
    ("rung", "released"),
    ("answered", "deadline"),
    ("answered", "inference-wait"),
    ("answer refused", "deadline"),
    ("put off", "to a human"),
    ("put off", "refused"),
    ("retry asked", "True"),
    *(("woke too late", deed) for deed in ("hand on", "complete", "fail", "give back", "renew")),
}
"""Edges, refusals, rings, answers and late deeds that a run must come by."""


class LedgerMachine(ClockRules):
    """Every rule does one thing to the ledger and to the model, and compares what was said of it."""

    @initialize(ways=st.lists(st.integers(0, PUT_OFF), min_size=2, max_size=4), lane=LANES)
    def begin_with_some_on_their_way(self, ways: list[int], lane: Lane) -> None:
        self.submit_all([(key, b"a", lane) for key in range(len(ways))])
        for case_id, way in zip(list(self.model.cases), ways, strict=True):
            if way == PUT_OFF:
                self.draw_one_near(case_id, 100 * LONG_S, 0.5 * LONG_S)
                self.guard_round()
                continue
            for pool in list(POOL_STATES)[:way]:
                self.hand_group_on(self.claim_for("w1", pool, [case_id]), ONWARD[pool])

    # Clients

    @rule(asked=st.lists(st.tuples(st.integers(0, 7), st.sampled_from([b"a", b"a", b"b"]), LANES), min_size=1, max_size=4))
    def submit(self, asked: list[tuple[int, bytes, Lane]]) -> None:
        self.submit_all(asked)

    @precondition(lambda self: self.model.open_ids())
    @rule(pick=PICK, is_late=st.booleans())
    def cancel(self, pick: int, is_late: bool) -> None:
        case = self.model.cases[of(self.model.open_ids(), pick)]
        owner = Ownership(case.case_id, *((0, CaseState.ACCEPTED) if is_late else (case.attempt, case.state)))
        self.end(owner, CaseState.CANCELLED, "cancelled", lambda told: cancel_case(self.ledger, owner, callback=told))

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

    @precondition(lambda self: self.claims)
    @rule(picks=PICKS)
    def renew(self, picks: list[int]) -> None:
        self.renew_all(self.group(picks, set(POOL_STATES), is_one_pool=False))

    def renew_all(self, group: Sequence[Held]) -> None:
        held = [(each.case_id, each.attempt) for each in group]
        assert renew_leases(self.ledger, held) == self.model.renew(held)

    @precondition(lambda self: self.holds_any(Pool.INTAKE, Pool.INFERENCE))
    @rule(picks=PICKS, skips=st.booleans())
    def hand_on(self, picks: list[int], skips: bool) -> None:
        group = self.group(picks, {Pool.INTAKE, Pool.INFERENCE})
        to_inference = group[0].pool is Pool.INTAKE and not skips
        self.hand_group_on(group, CaseState.AWAITING_INFERENCE if to_inference else CaseState.AWAITING_REPORT)

    @precondition(lambda self: self.holds_any(Pool.REPORTING))
    @rule(picks=PICKS, after=st.sampled_from([1, 1, 1, 2]))
    def complete(self, picks: list[int], after: int) -> None:
        self.complete_group(self.group(picks, {Pool.REPORTING}), after)

    @precondition(lambda self: self.claims)
    @rule(pick=PICK)
    def fail(self, pick: int) -> None:
        self.fail_one(self.claims[-1 - pick % len(self.claims)])

    def fail_one(self, held: Held) -> None:
        owner = Ownership(held.case_id, held.attempt, POOL_STATES[held.pool].claimed, held.worker)
        self.end(owner, CaseState.FAILED, "x", partial(self.write_failure, owner))

    @precondition(lambda self: self.claims)
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

    @precondition(lambda self: self.model.open_ids())
    @rule(pools=st.permutations(list(POOL_STATES)), does=st.sampled_from(["write", "write", "fail", "give back", "renew"]))
    def wake_too_late(self, pools: list[Pool], does: str) -> None:
        """A worker stands still past its lease; another has its cases when it goes on."""
        waiting = {pool: self.waiting_for(pool) for pool in pools}
        pool = next((pool for pool in pools if waiting[pool]), pools[0])
        group = self.claim_for("w1", pool, waiting[pool])
        self.lapse_claims_of("w1")
        again = self.claim_for("w2", group[0].pool, [held.case_id for held in group]) if group else []
        # One that had its last try is claimed by nobody.
        group = [held for held in group if held.case_id in {each.case_id for each in again}]
        if not group:
            return
        states = POOL_STATES[group[0].pool]
        deed = does if does != "write" else "complete" if group[0].pool is Pool.REPORTING else "hand on"
        self.met.add(("woke too late", deed))
        if deed == "give back":
            self.give_group_back(group, Return(states.claimed, states.queued, "x"))
        elif deed == "fail":
            self.fail_one(group[0])
        elif deed == "renew":
            self.renew_all(group)
        elif deed == "complete":
            self.complete_group(group, 1)
        else:
            self.hand_group_on(group, ONWARD[group[0].pool])

    # The sweeper

    @precondition(lambda self: self.model.open_ids())
    @rule(worker=WORKERS, pick=PICK, dies=st.booleans())
    def free_expired(self, worker: str, pick: int, dies: bool) -> None:
        if dies and self.answer(worker, pick):
            self.lapse_claims_of(worker)
        for pool in POOL_STATES:
            rungs = sweep.free_expired(self.ledger, pool, limit=100)
            self.compare_rung("freed", rungs, self.model.free_expired(pool, limit=100))
        self.find_spent()

    @rule(behind=st.tuples(*[st.sampled_from([0, 0, 2, 100])] * 3), limit=FEW_OR_ALL, is_old=st.booleans())
    def ring_overtaken(self, behind: tuple[int, int, int], limit: int, is_old: bool) -> None:
        if is_old:
            self.age_cases(self.model.open_ids())
        seen_nos = {lane: max(0, self.newest_no - back) for lane, back in zip(Lane, behind, strict=True)}
        for pool in POOL_STATES:
            rungs = sweep.ring_overtaken(self.ledger, pool, seen_nos=seen_nos, limit=limit)
            self.compare_rung("overtaken", rungs, self.model.ring_overtaken(pool, seen_nos, limit=limit))

    @rule(limit=FEW_OR_ALL, back=st.sampled_from([0, 3]))
    def ring_all(self, limit: int, back: int) -> None:
        up_to_no = sweep.newest_publish_no(self.ledger) - back if self.model.cases else 0
        for pool in POOL_STATES:
            rungs = sweep.ring_all(self.ledger, pool, up_to_no=up_to_no, limit=limit)
            self.compare_rung("all", rungs, self.model.ring_all(pool, up_to_no=up_to_no, limit=limit))

    @rule(limit=FEW_OR_ALL, tokens=st.sampled_from([0, 1, MOST_TOKENS]))
    def ring_due(self, limit: int, tokens: int) -> None:
        for pool in POOL_STATES:
            change_budgets(self.ledger, {pool: -MOST_TOKENS})
            change_budgets(self.ledger, {pool: tokens})
            rungs = sweep.ring_due(self.ledger, pool, limit=limit)
            self.compare_rung("due", rungs, self.model.ring_due(pool, limit=limit, tokens=int(tokens)))

    @rule(limit=FEW_OR_ALL, back=st.sampled_from([100, 5]))
    def read_the_line(self, limit: int, back: int) -> None:
        after_no = max(0, self.newest_no - back)
        found = sweep.awaiting_inference(self.ledger, after_no=after_no, limit=limit)
        expected = self.model.awaiting_inference(after_no=after_no, limit=limit)
        assert [each.rung.case_id for each in found] == [case.case_id for case in expected]

    @rule()
    def read_what_was_answered(self) -> None:
        seen = sweep.newest_seen(self.ledger, after_id=self.looked_to)
        found = (seen.last_id, {pool: dict(lanes) for pool, lanes in seen.publish_nos.items()}, seen.claim_count)
        assert found == self.model.newest_seen(after_id=self.looked_to)


@pytest.fixture
def machine(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> type[LedgerMachine]:
    """The machine on the empty ledger, where only rules let time pass, and few tries are many."""
    for room, name, value in (
        (claims, "LEASE_S", LIMITS.lease_s),
        (claims, "MAX_TRIES", LIMITS.max_tries),
        (claims, "MOST_ATTEMPTS", LIMITS.most_attempts),
        (compensation, "MOST_COMPENSATION_ATTEMPTS", LIMITS.most_compensation_attempts),
        (sweep, "MAX_TRIES", LIMITS.max_tries),
        (sweep, "OVERTAKEN_BY", LIMITS.overtaken_by),
        (sweep, "OVERTAKEN_AFTER_S", LIMITS.overtaken_after_s),
        (sweep, "SETTLE_S", LIMITS.settle_s),
    ):
        monkeypatch.setattr(room, name, value)
    monkeypatch.setattr(LedgerMachine, "ledger", ledger, raising=False)
    monkeypatch.setattr(LedgerMachine, "met", set())
    return LedgerMachine


@pytest.mark.timeout(600 + EXAMPLES)
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
            phases=[Phase.generate, *([Phase.shrink] if SHRINKS else [])],
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )

    # Else it has agreed about little.
    assert machine.met >= MUST_MEET, sorted(map(str, MUST_MEET - machine.met))
