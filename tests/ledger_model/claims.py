"""Acceptance, claims, hand-offs and ends."""

from collections.abc import Callable, Sequence
from typing import Literal
from uuid import UUID

from pipeline.cases.states import POOL_STATES, CaseState
from pipeline.flow import Lane, Pool
from pipeline.persistence.ledger.claims import Return
from tests.ledger_model.rows import ModelCase, Result, Rows

Hold = tuple[UUID, int]
"""A case and the attempt under which it is held."""


class ClaimRules(Rows):
    """What clients and workers do."""

    __slots__ = ()

    def accept(
        self, case_id: UUID, lane: Lane, *, key: str, fingerprint: bytes, accepted_at: float, deadline_at: float
    ) -> tuple[ModelCase, Literal["new", "replay", "reused"]]:
        """Make a case, or find the one that the key names."""
        if key in self.keys:
            known = self.cases[self.keys[key]]
            return known, "replay" if known.fingerprint == fingerprint else "reused"
        case = ModelCase(case_id, fingerprint, lane, accepted_at, deadline_at, 0, self.now, self.now, accepted_at)
        self.keys[key], self.cases[case_id] = case_id, case
        self.publish([case])
        self.log(case, None)
        return case, "new"

    def claim(self, asked: Sequence[UUID], pool: Pool, worker: str, *, seen_no: int) -> list[UUID]:
        """Take what is free and has tries left, in the order asked."""
        self.tick()
        states, taken = POOL_STATES[pool], []
        for case_id in dict.fromkeys(asked):
            case = self.cases.get(case_id)
            if case is None or case.tries >= self.limits.max_tries or not self.is_free_for(case, states):
                continue
            if case.state is states.queued and case.is_delayed:
                continue
            if case.state is states.claimed:
                self.move(case, states.queued, code="lease-expired")
                case.strikes += 1
            case.attempt, case.tries = case.attempt + 1, case.tries + 1
            self.move(case, states.claimed, worker=worker, seen_no=seen_no, code="retry" if case.tries > 1 else None)
            case.holder, case.lease_until = worker, self.now + self.limits.lease_s
            taken.append(case_id)
        return taken

    def renew(self, held: Sequence[Hold]) -> set[UUID]:
        """A sign of life: also after the lease ran out, as long as nobody took the case."""
        self.tick()
        alive = {each for each, attempt in held if self.cases[each].attempt == attempt and self.cases[each].lease_until is not None}
        for case_id in alive:
            self.cases[case_id].lease_until = self.now + self.limits.lease_s
        return alive

    def hand_on(self, held: Sequence[Hold], *, left: CaseState, entered: CaseState, worker: str) -> list[UUID]:
        """Move what stands to the next queue."""

        def moved(case: ModelCase) -> None:
            self.move(case, entered, worker=worker)
            case.tries = case.strikes = 0
            self.publish([case])

        return self._each_standing(held, left, moved)

    def give_back(self, held: Sequence[Hold], why: Return, *, worker: str) -> list[UUID]:
        """Return what stands and is this worker's; the last attempt of all costs the rest of the tries, charged or not."""

        def moved(case: ModelCase) -> None:
            self.move(case, why.entered, worker=worker, code=why.code)
            case.strikes += why.is_strike
            if case.attempt >= self.limits.most_attempts:
                case.tries = self.limits.max_tries
            elif why.is_free:
                case.tries -= 1
            self.publish([case], delay_s=why.delay_s)

        return self._each_standing(held, why.left, moved, holder=worker)

    def complete(self, held: Sequence[tuple[UUID, int, Result]], *, left: CaseState, worker: str | None) -> set[UUID]:
        """End with a result what stands and has had the version before it."""
        answers = {case_id: answer for case_id, _, answer in held}
        fitting = [(each, attempt) for each, attempt, answer in held if self.cases[each].result_version == answer.version - 1]

        def moved(case: ModelCase) -> None:
            answer = answers[case.case_id]
            self.end(case, CaseState.COMPLETED, worker=worker, code=answer.outcome)
            case.tries, case.result_version, case.is_preliminary = 0, answer.version, False
            case.results.append(Result(answer.version, answer.kind, answer.outcome, case.attempt, self.now))

        return set(self._each_standing(fitting, left, moved))

    def end_as(self, hold: Hold, *, left: CaseState, entered: CaseState, code: str, worker: str | None) -> bool:
        """Fail or cancel a case that stands; False where it has moved."""
        return bool(self._each_standing([hold], left, lambda case: self.end(case, entered, worker=worker, code=code)))

    def _each_standing(
        self, held: Sequence[Hold], left: CaseState, do: Callable[[ModelCase], None], *, holder: str | None = None
    ) -> list[UUID]:
        self.tick()
        standing = [each for each, attempt in held if self.stands(each, attempt, left)]
        moved = [each for each in standing if holder is None or self.cases[each].holder == holder]
        for case_id in moved:
            do(self.cases[case_id])
        return moved
