"""Rules of time: leases that lapse, waits and deadlines; and of those who watch it: guard, compensation queue, operators."""

from collections.abc import Collection
from functools import partial
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from sqlalchemy import text

from pipeline.cases.states import POOL_STATES, CaseState
from pipeline.flow import Lane, Pool
from pipeline.persistence.ledger import sweep
from pipeline.persistence.ledger.claims import Return
from pipeline.persistence.ledger.compensation import PutOff, ask_retry, look_round, put_off, release
from pipeline.persistence.ledger.engine import run
from pipeline.persistence.ledger.guard import OwedCase, give_answer, owed_cases
from pipeline.persistence.ledger.outcomes import Answer, Ownership
from tests.integration.persistence.holdings import body_of
from tests.integration.persistence.ledger_walk import LONG_S, TENANT, LedgerWalk, of
from tests.ledger_model.answers import Owed

PICK = st.integers(0, 11)
PICKS = st.lists(PICK, min_size=1, max_size=4)
FEW_OR_ALL = st.sampled_from([1, 2, 100])
WAITS_S = st.sampled_from([2 * LONG_S, 0.5 * LONG_S])
TIMES_S = st.sampled_from([(100 * LONG_S, LONG_S - 600), (100 * LONG_S, LONG_S + 600), (6000.0, 1100.0), (6000.0, 1300.0)])
"""(from acceptance to deadline, left of it): an hour, or a fifth where that is less, is kept in reserve."""
LOOKS_KEPT = 6

LAPSE = text("UPDATE cases SET lease_until = clock_timestamp() - interval '1 ms' WHERE id = ANY(:ids) AND lease_until IS NOT NULL")
AGE = text("UPDATE cases SET published_at = published_at - interval '2 h', due_at = due_at - interval '2 h' WHERE id = ANY(:ids)")
STAND = text("UPDATE cases SET changed_at = clock_timestamp() - make_interval(secs => :waited_s) WHERE id = :id")
DRAW_NEAR = text("""
UPDATE cases SET accepted_at = clock_timestamp() + make_interval(secs => CAST(:left_s AS float) - CAST(:total_s AS float)),
       deadline_at = clock_timestamp() + make_interval(secs => :left_s) WHERE id = :id
""")


class ClockRules(LedgerWalk):
    """Time passes, and somebody notices."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[tuple[OwedCase, Owed]] = []
        """What a guard saw, perhaps long ago."""
        self.spent_looks: list[sweep.Spent] = []
        self.looked_to = 0

    # Time

    @precondition(lambda self: any(case.holder for case in self.model.cases.values()))
    @rule(pick=PICK)
    def lapse(self, pick: int) -> None:
        self.lapse_claims_of(of([case.holder for case in self.model.cases.values() if case.holder], pick))

    def lapse_claims_of(self, worker: str) -> None:
        lapsed = [case_id for case_id, case in self.model.cases.items() if case.holder == worker]
        run(self.ledger.relaxed, LAPSE, ids=lapsed)
        self.model.tick()
        for case_id in lapsed:
            self.model.cases[case_id].lease_until = self.model.now - 0.001

    @precondition(lambda self: self.model.open_ids())
    @rule(picks=PICKS)
    def age(self, picks: list[int]) -> None:
        self.age_cases({of(self.model.open_ids(), pick) for pick in picks})

    def age_cases(self, aged: Collection[UUID]) -> None:
        run(self.ledger.relaxed, AGE, ids=list(aged))
        for case_id in aged:
            self.model.cases[case_id].published_at -= 2 * LONG_S
            self.model.cases[case_id].due_at -= 2 * LONG_S

    @precondition(lambda self: self.model.open_ids())
    @rule(pick=PICK, waited_s=WAITS_S)
    def stand(self, pick: int, waited_s: float) -> None:
        self.stand_one(of(self.model.open_ids(), pick), waited_s)

    def stand_one(self, case_id: UUID, waited_s: float) -> None:
        run(self.ledger.relaxed, STAND, id=case_id, waited_s=waited_s)
        self.model.cases[case_id].changed_at = self.model.now - waited_s

    @precondition(lambda self: self.model.open_ids())
    @rule(pick=PICK, times_s=TIMES_S)
    def draw_near(self, pick: int, times_s: tuple[float, float]) -> None:
        self.draw_one_near(self.model.cases[of(self.model.open_ids(), pick)].case_id, *times_s)

    def draw_one_near(self, case_id: UUID, total_s: float, left_s: float) -> None:
        case = self.model.cases[case_id]
        run(self.ledger.relaxed, DRAW_NEAR, id=case_id, total_s=total_s, left_s=left_s)
        self.model.tick()
        case.accepted_at, case.deadline_at = self.model.now + left_s - total_s, self.model.now + left_s

    # The guard

    @rule(limit=FEW_OR_ALL)
    def guard_looks(self, limit: int) -> None:
        self.look(limit)

    def look(self, limit: int) -> list[tuple[OwedCase, Owed]]:
        found = owed_cases(self.ledger, wait_s=LONG_S, reserve_s=LONG_S, limit=limit)
        expected = self.model.owed(wait_s=LONG_S, reserve_s=LONG_S, limit=limit)
        assert [(each.case_id, each.state, each.attempt, each.result_version, each.is_due, each.is_put_off) for each in found] == [
            (each.case_id, each.state, each.attempt, each.result_version, each.is_due, each.is_put_off) for each in expected
        ]
        assert [each.lane for each in found] == [self.model.cases[each.case_id].lane for each in expected]
        seen = list(zip(found, expected, strict=True))
        self.looks = [*seen, *self.looks][:LOOKS_KEPT]
        return seen

    @precondition(lambda self: self.looks)
    @rule(pick=PICK)
    def guard_answers_what_it_saw(self, pick: int) -> None:
        self.answer_by_clock(*of(self.looks, pick))

    @rule()
    def guard_round_after_a_long_wait(self) -> None:
        for case_id in self.model.open_ids():
            self.stand_one(case_id, 2 * LONG_S)
        self.guard_round()

    @rule()
    def guard_round(self) -> None:
        for seen, expected in self.look(100):
            assert self.answer_by_clock(seen, expected)
        # I4: whoever is late has an answer, and whoever is late and in a queue is out of it.
        assert self.look(100) == []

    def answer_by_clock(self, seen: OwedCase, expected: Owed) -> bool:
        reason = "deadline" if seen.is_due else "inference-wait"
        version = 1 if seen.result_version == 0 else None
        answer = Answer(1, "preliminary", "not_yet_read", body_of(seen.case_id, seen.attempt)) if version else None
        callback = self.callback("case.preliminary" if version else "case.deferred")
        given = give_answer(self.ledger, seen, answer, reason=reason, callback=callback)
        assert given == self.model.give_answer(expected, version=version, reason=reason)
        self.met.add(("answered" if given else "answer refused", reason))
        return given

    # The compensation queue

    @rule(limit=FEW_OR_ALL)
    def release_some(self, limit: int) -> None:
        rungs = release(self.ledger, limit=limit)
        self.compare_rung("released", rungs, self.model.release(limit=limit))

    @rule()
    def look_round_the_house(self) -> None:
        room = look_round(self.ledger, after_id=self.looked_to)
        found = (room.waiting_count, room.running_count, room.completed_count, room.last_id)
        assert found == self.model.look_round(after_id=self.looked_to)
        self.looked_to = room.last_id

    @precondition(lambda self: any(case.lane is Lane.COMPENSATION for case in self.model.cases.values()))
    @rule(pick=PICK, is_ours=st.sampled_from([True, True, False]))
    def ask_retry(self, pick: int, is_ours: bool) -> None:
        case_id = of([each for each, case in self.model.cases.items() if case.lane is Lane.COMPENSATION], pick)
        tenant_id = TENANT if is_ours else case_id
        asked = ask_retry(self.ledger, case_id, tenant_id=tenant_id, actor="key:x")
        assert asked == (is_ours and self.model.ask_retry(case_id, actor="key:x"))
        self.met.add(("retry asked", str(asked)))

    @precondition(lambda self: any(case.state is CaseState.DEFERRED for case in self.model.cases.values()))
    @rule(rests=st.booleans(), times=st.sampled_from([1, 3]))
    def try_put_off_cases_in_vain(self, rests: bool, times: int) -> None:
        """Tries of the compensation queue that come to nothing; the next may have to wait."""
        for _ in range(times - 1):
            self.try_once_in_vain(rests=False)
        self.try_once_in_vain(rests=rests)

    def try_once_in_vain(self, *, rests: bool) -> None:
        self.release_some(100)
        for _ in range(self.model.limits.max_tries):
            asked = [each for each, case in self.model.cases.items() if case.lane is Lane.COMPENSATION and case.is_open]
            if held := self.claim_for("w1", Pool.INTAKE, asked):
                self.give_group_back(held, Return(CaseState.FETCHING, CaseState.ACCEPTED, "x"))
        self.set_all_aside(rests=rests)

    # Who has had too many tries

    def find_spent(self) -> list[sweep.Spent]:
        found = [sweep.find_spent(self.ledger, pool, limit=100) for pool in POOL_STATES]
        expected = [self.model.spent(pool) for pool in POOL_STATES]
        assert [{each.case_id for each in of_pool} for of_pool in found] == [set(of_pool) for of_pool in expected]
        spent = sorted((each for of_pool in found for each in of_pool), key=lambda each: each.case_id)
        self.spent_looks = [*spent, *self.spent_looks][:LOOKS_KEPT]
        return spent

    @precondition(lambda self: any(self.model.spent(pool) for pool in POOL_STATES))
    @rule(rests=st.booleans())
    def quarantine(self, rests: bool) -> None:
        self.set_all_aside(rests=rests)

    def set_all_aside(self, *, rests: bool) -> None:
        for spent in self.find_spent():
            self.set_aside(spent, rests=rests)

    @precondition(lambda self: self.spent_looks)
    @rule(pick=PICK)
    def quarantine_what_it_saw(self, pick: int) -> None:
        self.set_aside(of(self.spent_looks, pick), rests=False)

    def set_aside(self, spent: sweep.Spent, *, rests: bool) -> None:
        """End it; one that was put off before is tried again later."""
        left = CaseState(spent.state)
        self.met.add(("spent", left))
        if self.model.cases[spent.case_id].lane is not Lane.COMPENSATION:
            owner = Ownership(spent.case_id, spent.attempt, left)
            self.end(owner, CaseState.FAILED, "x", partial(self.write_failure, owner))
            return
        put = PutOff(spent.case_id, spent.attempt, left, "quarantined", LONG_S if rests else 0.0)
        at_human = put_off(self.ledger, put)
        assert at_human == self.model.put_off(put)
        self.met.add(("put off", {True: "to a human", False: "until later", None: "refused"}[at_human]))
