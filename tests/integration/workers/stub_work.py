"""The least that a pool can do, done with the ledger's own statements: for tests of what stands round it."""

from collections.abc import Callable, Sequence
from uuid import UUID

from uuid6 import uuid7

from pipeline.cases.states import CaseState
from pipeline.flow import Pool
from pipeline.persistence.ledger.claims import Claimed, HandOn, hand_on
from pipeline.persistence.ledger.outcomes import Callback, Completion, complete_cases
from tests.integration.persistence.answers import answer_of
from workers.doorbell import ring
from workers.endings import Written
from workers.stage_task import PoolRuntime, StageClock

CLAIM_AND_RUN = "claim and run"
EFFECT_AND_COMMIT = "effect computed and commit"
COMMIT_AND_PUBLISH = "commit and publish"
COMMIT_AND_ACK = "commit and ack"
INSERT_AND_SEND = "callback's insert and its send"
ENDPOINT = UUID(int=7)

Passing = Callable[[str], None]


def nothing(_point: str) -> None:
    """Pass on."""


def new_id() -> UUID:
    return UUID(bytes=uuid7().bytes)


class StubReporting:
    """Ends cases with an empty answer and one callback; says which point it passes."""

    def __init__(self, runtime: PoolRuntime, passing: Passing = nothing) -> None:
        self._services, self._passing = runtime.services, passing
        self.did: list[UUID] = []
        self.commits: list[int] = []

    def do(self, case: Claimed, clock: StageClock) -> Completion:
        self._passing(CLAIM_AND_RUN)
        self.did.append(case.case_id)
        told = Callback(new_id(), ENDPOINT, "case.completed", "{}")
        return Completion(case.case_id, case.attempt, answer_of(case.case_id, case.result_version + 1), clock.finish(), told)

    def write(self, done: Sequence[Completion]) -> Written:
        self._passing(EFFECT_AND_COMMIT)
        self.commits.append(len(done))
        written = complete_cases(self._services.ledger, done, left=CaseState.POSTPROCESSING, worker=self._services.worker)
        self._passing(INSERT_AND_SEND)
        return Written(written.ended)


class StubIntake:
    """Hands cases on to reporting and rings it; says which point it passes."""

    def __init__(self, runtime: PoolRuntime, passing: Passing = nothing) -> None:
        self._app, self._services, self._passing = runtime.app, runtime.services, passing

    def do(self, case: Claimed, clock: StageClock) -> HandOn:
        return HandOn(case.case_id, case.attempt, {}, dict(clock.finish()))

    def write(self, done: Sequence[HandOn]) -> Written:
        worker = self._services.worker
        rungs = hand_on(self._services.ledger, done, left=CaseState.FETCHING, entered=CaseState.AWAITING_REPORT, worker=worker)
        self._passing(COMMIT_AND_PUBLISH)
        ring(self._app, Pool.REPORTING, rungs)
        return Written({rung.case_id for rung in rungs})
