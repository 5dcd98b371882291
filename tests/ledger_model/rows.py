"""The rows of the ledger as plain values, and the few things that every rule does to them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from pipeline.cases.states import POOL_STATES, CaseState, PoolStates, require_transition
from pipeline.flow import Lane, Pool

TICK_S = 1e-6
"""Two statements never see the same moment."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The constants that the rules go by."""

    lease_s: float = 6.0
    max_tries: int = 2
    most_attempts: int = 30
    most_compensation_attempts: int = 5
    overtaken_by: int = 50
    overtaken_after_s: float = 3.0
    settle_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Held:
    """What a worker believes that it holds; it never hears that another has it now."""

    case_id: UUID
    attempt: int
    pool: Pool
    worker: str


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a case's past."""

    id: int
    case_id: UUID
    version: int
    left: CaseState | None
    entered: CaseState
    attempt: int
    worker: str | None
    code: str | None
    publish_no: int | None
    at: float


@dataclass(frozen=True, slots=True)
class Result:
    """One answer."""

    version: int
    kind: str
    outcome: str
    attempt: int
    at: float


@dataclass(slots=True)
class ModelCase:
    """One case; moments are seconds of the model's clock."""

    case_id: UUID
    fingerprint: bytes
    lane: Lane
    accepted_at: float
    deadline_at: float
    publish_no: int
    published_at: float
    due_at: float
    changed_at: float
    state: CaseState = CaseState.ACCEPTED
    attempt: int = 0
    tries: int = 0
    strikes: int = 0
    holder: str | None = None
    lease_until: float | None = None
    version: int = 1
    result_version: int = 0
    is_preliminary: bool = False
    ended_at: float | None = None
    compensation_attempts: int = 0
    worklist_at: float | None = None
    reason: str | None = None
    results: list[Result] = field(default_factory=list)
    callbacks: list[tuple[str, str]] = field(default_factory=list)
    """(type of the event, state of its delivery), in the order in which they were written."""

    @property
    def is_open(self) -> bool:
        return self.ended_at is None

    @property
    def is_delayed(self) -> bool:
        """It was given back to be tried later, and nobody has rung for it since."""
        return self.due_at > self.published_at


@dataclass(slots=True)
class Rows:
    """All rows, and the clock by which every rule judges."""

    limits: Limits = Limits()
    now: float = 0.0
    cases: dict[UUID, ModelCase] = field(default_factory=dict)
    keys: dict[str, UUID] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    newest_no: int = 0

    def open_ids(self) -> list[UUID]:
        """Cases that have not ended."""
        return [each for each, case in self.cases.items() if case.is_open]

    def is_lapsed(self, case: ModelCase) -> bool:
        """Whether its worker gave no sign of life for the length of a lease."""
        return case.lease_until is not None and case.lease_until < self.now

    def is_free_for(self, case: ModelCase, states: PoolStates) -> bool:
        """Whether it waits for the pool, or its worker there is gone."""
        return case.state is states.queued or (case.state is states.claimed and self.is_lapsed(case))

    def waits_for(self, case: ModelCase, pool: Pool) -> bool:
        """Whether it waits for the pool and has tries left."""
        return case.state is POOL_STATES[pool].queued and case.tries < self.limits.max_tries

    def stands(self, case_id: UUID, attempt: int, left: CaseState) -> bool:
        """Whether nobody has claimed, moved or ended the case since."""
        case = self.cases[case_id]
        return case.attempt == attempt and case.state is left

    def tick(self) -> None:
        """Let the next statement be later than the one before it."""
        self.now += TICK_S

    def move(
        self, case: ModelCase, entered: CaseState, *, worker: str | None = None, code: str | None = None, seen_no: int | None = None
    ) -> None:
        """Enter a state, which nobody holds yet, and log it."""
        require_transition(case.state, entered)
        left, case.state, case.holder, case.lease_until, case.changed_at = case.state, entered, None, None, self.now
        self.log(case, left, worker=worker, code=code, seen_no=seen_no)

    def end(self, case: ModelCase, entered: CaseState, *, worker: str | None, code: str) -> None:
        """Enter a last state; what was said of an answer to come is not told any more."""
        self.move(case, entered, worker=worker, code=code)
        case.ended_at = self.now
        case.callbacks = [(kind, "dropped" if kind in ("case.preliminary", "case.deferred") else state) for kind, state in case.callbacks]
        case.callbacks.append(("case.ended", "pending"))

    def log(
        self, case: ModelCase, left: CaseState | None, *, worker: str | None = None, code: str | None = None, seen_no: int | None = None
    ) -> None:
        """Write one event of a case as it is now; its version goes up."""
        if left is not None:
            case.version += 1
        event = (case.version, left, case.state, case.attempt, worker, code, seen_no, self.now)
        self.events.append(Event(len(self.events) + 1, case.case_id, *event))

    def publish(self, cases: Iterable[ModelCase], *, delay_s: float | None = 0.0) -> None:
        """Give fresh doorbell numbers; a delay of None leaves alone when they are due."""
        for case in cases:
            self.newest_no += 1
            case.publish_no, case.published_at = self.newest_no, self.now
            if delay_s is not None:
                case.due_at = self.now + delay_s
