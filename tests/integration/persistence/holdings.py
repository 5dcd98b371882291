"""Everything that the ledger holds, and what must be true of it whatever happened before: I1 to I6 and I9 at every moment."""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.engine import Row

from pipeline.cases.digests import chain_of
from pipeline.cases.states import EDGES, POOL_STATES, TERMINAL, CaseState
from pipeline.persistence.ledger.engine import Ledger, run
from schemas.identifiers import public_id

CLAIMED = {states.claimed for states in POOL_STATES.values()}
STAYS = {"inference-wait", "deadline", "retry-asked"}
"""Why an event may enter the state that it leaves."""
BEFORE_THE_END = {"case.preliminary", "case.deferred"}

_CASES = text("""
SELECT *, lease_until < clock_timestamp() AS is_lapsed, due_at > published_at AS is_delayed, due_at > clock_timestamp() AS is_resting
FROM cases
""")
_EVENTS = text("""
SELECT case_id, version, left_state, entered_state, attempt, worker, code, publish_no FROM case_events ORDER BY case_id, version
""")
_RESULTS = text("SELECT case_id, version, kind, outcome, body, attempt FROM results ORDER BY case_id, version")
_CALLBACKS = text("SELECT case_id, event_type, state FROM deliveries")


def body_of(case_id: UUID, attempt: int) -> str:
    """An answer that says whose it is, and whose work."""
    return json.dumps({"case_id": public_id("case", case_id), "input_digest": chain_of(()), "attempt": attempt})


@dataclass(frozen=True, slots=True)
class Holdings:
    """The rows, by case."""

    cases: dict[UUID, Row[Any]]
    events: dict[UUID, list[Row[Any]]]
    results: dict[UUID, list[Row[Any]]]
    callbacks: dict[UUID, list[Row[Any]]]

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
                _check_answer(row, self.results[case_id], self.events[case_id])
                _check_callbacks(row, self.results[case_id], self.callbacks[case_id])
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
        callbacks=_by_case(run(ledger.relaxed, _CALLBACKS)),
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
        stays = left is entered and event.code in STAYS
        assert stays or entered in EDGES[left], f"no edge from {left} to {entered}"
        assert event.version == before.version + 1, f"version {event.version} after {before.version}"
        claims = entered in CLAIMED and not stays
        assert event.attempt == before.attempt + claims, f"attempt {event.attempt} after {before.attempt} in {entered}"
        assert (event.publish_no is not None) == claims, f"{entered} by doorbell {event.publish_no}"
    assert (last.version, last.entered_state, last.attempt) == (row.version, row.state, row.attempt), "the row is not where its events end"


def _check_holder(row: Row[Any]) -> None:
    is_claimed = CaseState(row.state) in CLAIMED
    assert (row.claimed_by is not None) == is_claimed, f"{row.state} is held by {row.claimed_by}"
    assert (row.lease_until is not None) == is_claimed, f"{row.state} has a lease: {row.lease_until}"
    assert (row.ended_at is not None) == (CaseState(row.state) in TERMINAL), f"{row.state} ended at {row.ended_at}"
    assert (row.lane == "compensation") == (row.deferred_because is not None), f"lane {row.lane}, put off because {row.deferred_because}"
    assert row.lane == "compensation" or (row.state != CaseState.DEFERRED and row.compensation_attempts == 0), "tried again, never put off"
    assert row.worklist_at is None or row.state in (CaseState.DEFERRED, CaseState.CANCELLED), f"{row.state} waits for a human"


def _check_answer(row: Row[Any], results: Sequence[Row[Any]], events: Sequence[Row[Any]]) -> None:
    assert [result.version for result in results] == list(range(1, row.result_version + 1)), "its result versions have a gap"
    kinds = [result.kind for result in results]
    assert kinds in ([], ["preliminary"], ["final"], ["preliminary", "final"]), f"its answers are {kinds}"
    assert (kinds[-1:] == ["final"]) == (row.state == CaseState.COMPLETED), f"{row.state} with {kinds}"
    assert row.is_preliminary == (kinds[-1:] == ["preliminary"]), f"preliminary: {row.is_preliminary}, with {kinds}"
    assert all(result.body == body_of(row.id, result.attempt) for result in results), "its result is another's"
    of_answers = {(event.attempt, event.entered_state == CaseState.COMPLETED) for event in events}
    assert all((result.attempt, result.kind == "final") in of_answers for result in results), "an answer of no attempt"


def _check_callbacks(row: Row[Any], results: Sequence[Row[Any]], callbacks: Sequence[Row[Any]]) -> None:
    count = Counter(each.event_type for each in callbacks)
    has_ended = CaseState(row.state) in TERMINAL
    assert count["case.ended"] == has_ended, f"{row.state}, and its end is told {count['case.ended']} times"
    assert count["case.preliminary"] == any(result.kind == "preliminary" for result in results), "a preliminary answer untold or told twice"
    states = {each.state for each in callbacks if each.event_type in BEFORE_THE_END}
    assert states <= ({"dropped"} if has_ended else {"pending"}), f"{row.state}, and what was to be told before is {states}"
