"""Answers by the clock, the compensation queue and the human worklist."""

from dataclasses import dataclass
from uuid import UUID

from pipeline.cases.states import POOL_STATES, QUEUED, CaseState
from pipeline.flow import Lane, Pool
from pipeline.persistence.ledger.compensation import PutOff
from tests.ledger_model.rows import ModelCase, Result, Rows


@dataclass(frozen=True, slots=True)
class Owed:
    """A case that is owed an answer, as a guard saw it."""

    case_id: UUID
    state: CaseState
    attempt: int
    result_version: int
    is_due: bool

    @property
    def is_put_off(self) -> bool:
        """Late, and in nobody's hands."""
        return self.is_due and self.state in QUEUED


class AnswerRules(Rows):
    """What the guard and the operators do."""

    __slots__ = ()

    def owed(self, *, wait_s: float, reserve_s: float, limit: int) -> list[Owed]:
        """Whom the clock owes an answer or a way out of a queue, the nearest deadline first."""
        self.tick()
        owed = (case for case in self.cases.values() if case.is_open)
        found = [case for case in owed if self._is_owed(case, is_due=self._is_due(case, reserve_s), wait_s=wait_s)]
        found.sort(key=lambda case: case.deadline_at)
        return [self._owed(case, reserve_s) for case in found[:limit]]

    def _is_owed(self, case: ModelCase, *, is_due: bool, wait_s: float) -> bool:
        if case.result_version > 0:
            return is_due and case.state in QUEUED and case.lane is not Lane.COMPENSATION
        waits_long = case.state is POOL_STATES[Pool.INFERENCE].queued and case.changed_at <= self.now - wait_s
        return is_due or waits_long

    def _is_due(self, case: ModelCase, reserve_s: float) -> bool:
        """Its deadline is here, or comes before its next try."""
        at = max(self.now, case.due_at) if case.state in QUEUED else self.now
        return at >= case.deadline_at - min(reserve_s, (case.deadline_at - case.accepted_at) / 5)

    def _owed(self, case: ModelCase, reserve_s: float) -> Owed:
        return Owed(case.case_id, case.state, case.attempt, case.result_version, self._is_due(case, reserve_s))

    def give_answer(self, seen: Owed, *, version: int | None, reason: str) -> bool:
        """Answer a case that is as it was seen, and put it off where it is late; False where it is not."""
        self.tick()
        case = self.cases[seen.case_id]
        if (case.state, case.attempt, case.result_version) != (seen.state, seen.attempt, seen.result_version) or not case.is_open:
            return False
        if seen.is_put_off:
            self.move(case, CaseState.DEFERRED, code=reason)
            case.lane, case.reason, case.due_at, case.tries = Lane.COMPENSATION, reason, self.now, 0
        else:
            self.log(case, case.state, code=reason)
        if version is not None:
            case.results.append(Result(version, "preliminary", "not_yet_read", case.attempt, self.now))
            case.result_version, case.is_preliminary = version, True
        case.callbacks.append(("case.preliminary" if version else "case.deferred", "pending"))
        return True

    def release(self, *, limit: int) -> list[UUID]:
        """Send the oldest due cases that no human has to look at back to intake, a try each."""
        self.tick()
        deferred = [case for case in self.cases.values() if case.state is CaseState.DEFERRED and case.worklist_at is None]
        chosen = sorted((case for case in deferred if case.due_at <= self.now), key=lambda case: case.accepted_at)[:limit]
        for case in chosen:
            case.tries, case.compensation_attempts = 0, case.compensation_attempts + 1
            self.move(case, CaseState.ACCEPTED, code="compensation")
            self.publish([case])
        return [case.case_id for case in chosen]

    def put_off(self, put: PutOff) -> bool | None:
        """Put a case off that stands; True where it has had its tries and is a human's now, None where it has moved."""
        self.tick()
        if not self.stands(put.case_id, put.attempt, put.left):
            return None
        case = self.cases[put.case_id]
        self.move(case, CaseState.DEFERRED, code=put.reason)
        case.lane, case.reason, case.tries, case.due_at = Lane.COMPENSATION, put.reason, 0, self.now + put.delay_s
        is_spent = put.to_human or case.compensation_attempts >= self.limits.most_compensation_attempts
        case.worklist_at = self.now if is_spent else None
        return is_spent

    def ask_retry(self, case_id: UUID, *, actor: str) -> bool:
        """Give a put-off case all its tries again, at once."""
        self.tick()
        case = self.cases[case_id]
        if case.state is not CaseState.DEFERRED:
            return False
        case.worklist_at, case.compensation_attempts, case.strikes, case.due_at = None, 0, 0, self.now
        self.log(case, case.state, worker=actor, code="retry-asked")
        return True

    def look_round(self, *, after_id: int) -> tuple[int, int, int, int]:
        """Cases of other lanes in a queue, compensation cases under way, cases completed since an event, the newest event."""
        self.tick()
        open_cases = [case for case in self.cases.values() if case.is_open]
        waiting = sum(case.lane is not Lane.COMPENSATION and case.state in QUEUED for case in open_cases)
        running = sum(case.lane is Lane.COMPENSATION and case.state is not CaseState.DEFERRED for case in open_cases)
        completed = sum(event.entered is CaseState.COMPLETED for event in self.events[after_id:])
        return waiting, running, completed, len(self.events)
