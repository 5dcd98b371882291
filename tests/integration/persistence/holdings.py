"""Everything that the ledger holds, and what must be true of it whatever happened before."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.engine import Row

from pipeline.cases.states import EDGES, POOL_STATES, TERMINAL, CaseState
from pipeline.persistence.ledger.engine import Ledger, run

CLAIMED = {states.claimed for states in POOL_STATES.values()}

_CASES = text("SELECT *, lease_until < clock_timestamp() AS is_lapsed FROM cases")
_EVENTS = text("SELECT case_id, version, left_state, entered_state, attempt FROM case_events ORDER BY id")
_RESULTS = text("SELECT case_id, version, body, attempt FROM results ORDER BY version")
_CALLBACKS = text("SELECT case_id FROM deliveries")


@dataclass(frozen=True, slots=True)
class Holdings:
    """The rows, by case."""

    cases: dict[UUID, Row[Any]]
    events: dict[UUID, list[Row[Any]]]
    results: dict[UUID, list[Row[Any]]]
    callbacks: Counter[UUID]

    def met(self) -> set[tuple[str, str]]:
        """Edges of the state table that were walked."""
        return {(event.left_state, event.entered_state) for events in self.events.values() for event in events if event.left_state}

    def check(self) -> None:
        """Raise AssertionError where something is not as it must be, and say of which case."""
        assert self.events.keys() == self.cases.keys(), "a case without events, or events without a case"
        for case_id, row in self.cases.items():
            try:
                _check_walk(self.events[case_id], row)
                _check_holder(row)
                _check_answer(row, self.results[case_id], self.callbacks[case_id])
            except AssertionError as error:
                raise AssertionError(f"case {case_id}: {error}") from error
        numbers = [row.publish_no for row in self.cases.values()]
        assert len(set(numbers)) == len(numbers), "two cases share a publish number"


def read_holdings(ledger: Ledger) -> Holdings:
    """Read the ledger as it is now."""
    return Holdings(
        cases={row.id: row for row in run(ledger.relaxed, _CASES)},
        events=_by_case(run(ledger.relaxed, _EVENTS)),
        results=_by_case(run(ledger.relaxed, _RESULTS)),
        callbacks=Counter(row.case_id for row in run(ledger.relaxed, _CALLBACKS)),
    )


def check_succession(before: Holdings, after: Holdings) -> None:
    """What may never happen between two moments: rows vanish, numbers fall, an ended case moves."""
    for case_id, was in before.cases.items():
        row = after.cases.get(case_id)
        assert row is not None, f"case {case_id} is gone"
        assert row.attempt >= was.attempt, f"case {case_id}: the attempt fell"
        assert row.publish_no >= was.publish_no, f"case {case_id}: the publish number fell"
        assert after.events[case_id][: len(before.events[case_id])] == before.events[case_id], f"case {case_id}: its past was changed"
        assert after.results[case_id][: len(before.results[case_id])] == before.results[case_id], f"case {case_id}: an answer was changed"
        if CaseState(was.state) in TERMINAL:
            assert row == was, f"case {case_id} was changed after its end"


def _by_case(rows: Sequence[Row[Any]]) -> defaultdict[UUID, list[Row[Any]]]:
    found: defaultdict[UUID, list[Row[Any]]] = defaultdict(list)
    for row in rows:
        found[row.case_id].append(row)
    return found


def _check_walk(events: Sequence[Row[Any]], row: Row[Any]) -> None:
    first, last = events[0], events[-1]
    assert (first.version, first.left_state, first.entered_state, first.attempt) == (1, None, "accepted", 0), "it did not begin as accepted"
    for before, event in pairwise(events):
        left, entered = CaseState(event.left_state), CaseState(event.entered_state)
        assert left.value == before.entered_state, f"left {left}, but stood in {before.entered_state}"
        assert entered in EDGES[left], f"no edge from {left} to {entered}"
        assert event.version == before.version + 1, f"version {event.version} after {before.version}"
        assert event.attempt == before.attempt + (entered in CLAIMED), f"attempt {event.attempt} after {before.attempt} in {entered}"
    assert (last.version, last.entered_state, last.attempt) == (row.version, row.state, row.attempt), "the row is not where its events end"


def _check_holder(row: Row[Any]) -> None:
    is_claimed = CaseState(row.state) in CLAIMED
    assert (row.claimed_by is not None) == is_claimed, f"{row.state} is held by {row.claimed_by}"
    assert (row.lease_until is not None) == is_claimed, f"{row.state} has a lease: {row.lease_until}"
    assert (row.ended_at is not None) == (CaseState(row.state) in TERMINAL), f"{row.state} ended at {row.ended_at}"


def _check_answer(row: Row[Any], results: Sequence[Row[Any]], callback_count: int) -> None:
    assert [result.version for result in results] == list(range(1, row.result_version + 1)), "its result versions have a gap"
    assert bool(results) == (row.state == CaseState.COMPLETED), f"{row.state} with {len(results)} results"
    assert all(result.attempt == row.attempt for result in results), "its result is another attempt's"
    assert callback_count == (CaseState(row.state) in TERMINAL), f"{row.state} with {callback_count} callbacks"
