"""The invariants, as pure functions over what the client saw and what the ledger holds at the end.

I1 each ok submit has exactly one row, an unknown one at most one, a failed one none. I2 every row is terminal. I3 result
versions are 1, 2, ... and only one of them is final. I5 the result belongs to the image. I6 every event is an edge of the
state table, and each begins where the one before it ended. I9 work done again stays within its bound.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from pipeline.cases.retries import MAX_STRIKES
from pipeline.cases.states import EDGES, POOL_STATES, TERMINAL, CaseState
from pipeline.flow import DEADLINE_S
from tests.faults.history import Submit, answer_for

CLAIMED = frozenset(states.claimed.value for states in POOL_STATES.values())


@dataclass(frozen=True, slots=True)
class CaseRow:
    """A case as it stands; moments are Unix seconds."""

    case_id: UUID
    state: str
    result_version: int
    accepted_at: float
    ended_at: float | None


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One version of a result."""

    case_id: UUID
    version: int
    kind: str
    digest: str | None
    """What the model answered for the image that it saw."""


@dataclass(frozen=True, slots=True)
class EventRow:
    """One state change."""

    case_id: UUID
    version: int
    left: str | None
    entered: str
    at: float
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """All rows at quiescence."""

    cases: Sequence[CaseRow]
    results: Sequence[ResultRow]
    events: Sequence[EventRow]


@dataclass(frozen=True, slots=True)
class Violation:
    """One invariant that does not hold for one case (None: for all together)."""

    invariant: str
    case_id: UUID | None
    what: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the cases that were promised."""

    cases: int
    lost: int
    """Promised, and at the end there is no row, or nobody will ever end it."""
    double: int
    """More than one visible effect."""
    late: int
    """Ended later than the product's deadline after acceptance."""
    unanswered: int
    """Promised, and at the end neither a result nor a coded failure."""
    failed: int
    """Ended without a result, although nothing was wrong with the input and nobody was killed with it aboard twice."""
    reexecuted: int
    """Claims beyond the first of a case in a pool."""
    violations: tuple[Violation, ...]
    quarantined: int = 0
    """Failed because two inference workers in succession were killed with it aboard: nothing tells it from a poisonous one."""


def check(history: Sequence[Submit], seen: Seen, *, most_reexecuted: int | None = None) -> Verdict:
    """Judge one run; `most_reexecuted` is the bound of I9, None where it has none."""
    results: defaultdict[UUID, list[ResultRow]] = defaultdict(list)
    for result in seen.results:
        results[result.case_id].append(result)
    events: defaultdict[UUID, list[EventRow]] = defaultdict(list)
    for event in seen.events:
        events[event.case_id].append(event)
    rows = {row.case_id: row for row in seen.cases}
    promised = [each.case_id for each in history if each.outcome == "ok"]
    again, quarantined = reexecuted(seen.events), sum(_was_struck_twice(row, events[row.case_id]) for row in seen.cases)
    return Verdict(
        cases=len(promised),
        lost=sum(case_id not in rows or not _has_ended(rows[case_id]) for case_id in promised),
        double=sum(is_double(results[case_id], events[case_id]) for case_id in set(results) | set(events)),
        late=sum(row.ended_at is not None and row.ended_at - row.accepted_at > DEADLINE_S for row in seen.cases),
        unanswered=sum(not results.get(case_id) and (case_id not in rows or rows[case_id].state != "failed") for case_id in promised),
        failed=sum(row.state in ("failed", "cancelled") for row in seen.cases) - quarantined,
        reexecuted=again,
        violations=(
            *rows_of_submits(history, seen.cases),
            *terminal_rows(seen.cases),
            *one_result(rows, results),
            *right_result(history, results),
            *allowed_edges(rows, events),
            *bounded_attempts(again, most_reexecuted),
        ),
        quarantined=quarantined,
    )


def _was_struck_twice(row: CaseRow, events: Sequence[EventRow]) -> bool:
    """Whether a case failed as the rule of two strikes has it: two claims for inference died, the second with the case alone."""
    lapses = [event for event in events if event.left == CaseState.INFERRING and event.code in ("lease-expired", "quarantined")]
    return row.state == CaseState.FAILED and len(lapses) == MAX_STRIKES and lapses[-1].entered == CaseState.FAILED


def _has_ended(row: CaseRow) -> bool:
    return row.state in TERMINAL


def is_double(results: Sequence[ResultRow], events: Sequence[EventRow]) -> bool:
    """Whether a case had more than one visible effect."""
    finals = sum(result.kind == "final" for result in results)
    return finals > 1 or sum(event.entered == CaseState.COMPLETED for event in events) > 1


def reexecuted(events: Sequence[EventRow]) -> int:
    """Claims beyond the first of a case in a pool."""
    claims = Counter((event.case_id, event.entered) for event in events if event.entered in CLAIMED)
    return sum(claims.values()) - len(claims)


def rows_of_submits(history: Sequence[Submit], cases: Sequence[CaseRow]) -> Iterator[Violation]:
    """I1."""
    count = Counter(row.case_id for row in cases)
    allowed = {"ok": (1,), "unknown": (0, 1), "fail": (0,)}
    for each in history:
        if count[each.case_id] not in allowed[each.outcome]:
            yield Violation("I1", each.case_id, f"submit was {each.outcome}, rows: {count[each.case_id]}")
    for case_id in count.keys() - {each.case_id for each in history}:
        yield Violation("I1", case_id, "a row that nobody asked for")


def terminal_rows(cases: Sequence[CaseRow]) -> Iterator[Violation]:
    """I2."""
    for row in cases:
        if not _has_ended(row):
            yield Violation("I2", row.case_id, f"still {row.state}")


def one_result(rows: Mapping[UUID, CaseRow], results: Mapping[UUID, Sequence[ResultRow]]) -> Iterator[Violation]:
    """I3."""
    for case_id, of_case in results.items():
        versions = sorted(result.version for result in of_case)
        if versions != list(range(1, len(versions) + 1)):
            yield Violation("I3", case_id, f"versions {versions}")
        if sum(result.kind == "final" for result in of_case) > 1:
            yield Violation("I3", case_id, "more than one final result")
    for row in rows.values():
        newest = max((result.version for result in results.get(row.case_id, ())), default=0)
        if row.result_version != newest or (row.state == CaseState.COMPLETED and newest == 0):
            yield Violation("I3", row.case_id, f"{row.state} with result version {row.result_version}, newest kept is {newest}")


def right_result(history: Sequence[Submit], results: Mapping[UUID, Sequence[ResultRow]]) -> Iterator[Violation]:
    """I5."""
    expected = {each.case_id: answer_for(each.key) for each in history}
    for case_id, of_case in results.items():
        for result in of_case:
            if result.kind != "preliminary" and result.digest != expected.get(case_id):
                yield Violation("I5", case_id, "the result belongs to another image")


def allowed_edges(rows: Mapping[UUID, CaseRow], events: Mapping[UUID, Sequence[EventRow]]) -> Iterator[Violation]:
    """I6."""
    for case_id, of_case in events.items():
        stands: str | None = None
        for event in sorted(of_case, key=lambda event: event.version):
            is_edge = event.entered == CaseState.ACCEPTED if stands is None else _is_edge(CaseState(stands), CaseState(event.entered))
            if event.left != stands or not is_edge:
                yield Violation("I6", case_id, f"stood in {stands}; event {event.left} to {event.entered}")
            stands = event.entered
        if case_id in rows and rows[case_id].state != stands:
            yield Violation("I6", case_id, f"the row says {rows[case_id].state}, its last event {stands}")


def _is_edge(left: CaseState, entered: CaseState) -> bool:
    """Whether the table has it; an answer by the clock without a move enters the state that it leaves."""
    return entered in EDGES[left] or (entered is left and left not in TERMINAL)


def bounded_attempts(again: int, most: int | None) -> Iterator[Violation]:
    """I9."""
    if most is not None and again > most:
        yield Violation("I9", None, f"{again} executed again, bound {most}")


def longest_gap_s(strikes: Sequence[float], events: Sequence[EventRow]) -> float | None:
    """Longest time from a strike until a case that was in hand then was claimed anew; None where none was in hand."""
    claims: defaultdict[tuple[UUID, str], list[float]] = defaultdict(list)
    for event in events:
        if event.entered in CLAIMED:
            claims[event.case_id, event.entered].append(event.at)
    gaps = [
        second - strike
        for moments in claims.values()
        for first, second in zip(sorted(moments), sorted(moments)[1:], strict=False)
        if (strike := next((moment for moment in sorted(strikes) if first <= moment <= second), None)) is not None
    ]
    return max(gaps, default=None)


def longest_silence_s(strikes: Sequence[float], cases: Sequence[CaseRow]) -> float | None:
    """Longest time from a strike until a case that was accepted after it had ended."""
    waits = [min((row.ended_at - strike for row in cases if row.ended_at and row.accepted_at > strike), default=None) for strike in strikes]
    return max((wait for wait in waits if wait is not None), default=None)
