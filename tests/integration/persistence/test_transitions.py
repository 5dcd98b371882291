"""Whatever the statements do to cases in whatever order: what was logged is a walk along the state table."""

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from pipeline.cases.states import EDGES, POOL_STATES, CaseState, pool_of
from pipeline.errors import StaleCompletion
from pipeline.flow import Pool
from pipeline.persistence.ledger import sweep
from pipeline.persistence.ledger.claims import HandOn, Return, claim_cases, give_back, hand_on
from pipeline.persistence.ledger.engine import Ledger, run
from pipeline.persistence.ledger.outcomes import Ownership, cancel_case, fail_case
from tests.integration.persistence.answers import answer_of
from tests.integration.persistence.singly import complete_case

pytestmark = pytest.mark.services

Cases = Any
"""The factory of `conftest.py`."""
POOLS = tuple(POOL_STATES)
ONWARD = {
    CaseState.FETCHING: [CaseState.AWAITING_INFERENCE, CaseState.AWAITING_REPORT],
    CaseState.INFERRING: [CaseState.AWAITING_REPORT],
}


class Walk:
    """Does something to a case at random: what a worker, a stale worker, a client or the sweeper would do."""

    def __init__(self, ledger: Ledger, cases: Cases, chance: random.Random) -> None:
        self._ledger, self._cases, self._chance = ledger, cases, chance

    def step(self, case_id: UUID) -> None:
        state, attempt = (row := self._cases.row(case_id)).state, row.attempt
        # Sometimes with the attempt of a worker that lost its claim.
        attempt -= self._chance.random() < 0.1
        acts: list[Callable[[UUID, CaseState, int], None]] = [self.claim, self.claim, self.on, self.on, self.on, self.back, self.lapse]
        acts += [self.free, self.fail, self.cancel] if self._chance.random() < 0.2 else []
        self._chance.choice(acts)(case_id, CaseState(state), attempt)

    def claim(self, case_id: UUID, state: CaseState, _attempt: int) -> None:
        claim_cases(self._ledger, [case_id], pool=pool_of(state) or Pool.INTAKE, worker="w", seen_no=1)

    def on(self, case_id: UUID, state: CaseState, attempt: int) -> None:
        if state in ONWARD:
            entered = self._chance.choice(ONWARD[state])
            hand_on(self._ledger, [HandOn(case_id, attempt, {}, {})], left=state, entered=entered, worker="w")
        elif state is CaseState.POSTPROCESSING:
            owner, answer = Ownership(case_id, attempt, state), answer_of(case_id)
            self.end(lambda: complete_case(self._ledger, owner, answer, timeline={}, callback=None))

    def back(self, case_id: UUID, state: CaseState, attempt: int) -> None:
        for states in POOL_STATES.values():
            if state is states.claimed:
                entered = self._chance.choice([states.queued, CaseState.ACCEPTED])
                give_back(self._ledger, [(case_id, attempt)], Return(state, entered, "back", is_free=True), worker="w")

    def lapse(self, case_id: UUID, state: CaseState, _attempt: int) -> None:
        if any(state is states.claimed for states in POOL_STATES.values()):
            self._cases.lapse(case_id)

    def free(self, _case_id: UUID, _state: CaseState, _attempt: int) -> None:
        for pool in POOLS:
            sweep.free_expired(self._ledger, pool, limit=100)
            sweep.ring_all(self._ledger, pool, up_to_no=2**62, limit=100)

    def fail(self, case_id: UUID, state: CaseState, attempt: int) -> None:
        if EDGES[state]:
            self.end(lambda: fail_case(self._ledger, Ownership(case_id, attempt, state), {"code": "x"}, timeline={}, callback=None))

    def cancel(self, case_id: UUID, state: CaseState, attempt: int) -> None:
        if EDGES[state]:
            self.end(lambda: cancel_case(self._ledger, Ownership(case_id, attempt, state), callback=None))

    def end(self, write: Callable[[], None]) -> None:
        try:
            write()
        except StaleCompletion:
            return


@pytest.mark.parametrize("seed", range(4))
def test_every_change_is_an_edge_of_the_table_and_begins_where_the_last_one_ended(ledger: Ledger, cases: Cases, seed: int) -> None:
    chance = random.Random(seed)
    walk, case_ids = Walk(ledger, cases, chance), [cases.accepted() for _ in range(12)]

    for _ in range(25):
        for case_id in case_ids:
            walk.step(case_id)

    for case_id in case_ids:
        events = cases.events(case_id)
        assert events[0] == (1, None, "accepted")
        for (version, _, was), (next_version, left, entered) in pairwise(events):
            assert left == was
            assert CaseState(entered) in EDGES[CaseState(left)]
            assert next_version == version + 1
        row = cases.row(case_id)
        assert (row.version, row.state) == (events[-1][0], events[-1][2])


def test_the_walk_meets_every_way_that_the_statements_can_go(ledger: Ledger, cases: Cases) -> None:
    chance = random.Random(99)
    walk, case_ids = Walk(ledger, cases, chance), [cases.accepted() for _ in range(40)]

    for _ in range(25):
        for case_id in case_ids:
            walk.step(case_id)

    rows = run(ledger.relaxed, text("SELECT DISTINCT left_state, entered_state FROM case_events WHERE left_state IS NOT NULL"))
    met = {(row.left_state, row.entered_state) for row in rows}
    # Nothing defers yet, and no statement takes a queued case back to intake.
    assert len(met) >= 20
    assert ("fetching", "awaiting_report") in met
    assert ("postprocessing", "completed") in met
    assert ("inferring", "accepted") in met
