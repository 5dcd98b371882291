"""Reading cases: one tenant at a time, page by page."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DatabaseError

from pipeline.deadline import utc_now
from pipeline.flow import Lane, Pool
from pipeline.persistence.ledger.cases import (
    Reader,
    list_cases,
    read_answered_case,
    read_answered_cases,
    read_case,
    read_events,
    read_result,
)
from pipeline.persistence.ledger.claims import Claimed
from pipeline.persistence.ledger.engine import Ledger, run
from pipeline.persistence.ledger.outcomes import Answer, Ownership
from tests.integration.persistence.answers import answer_of
from tests.integration.persistence.singly import complete_case

pytestmark = pytest.mark.services

Cases = Any
"""The factory of `conftest.py`."""
TENANT, OTHER = UUID(int=1), UUID(int=2)
KEY = UUID(int=9)
MINE = Reader(TENANT, KEY)


@pytest.fixture
def completed(ledger: Ledger, cases: Cases, owner: Callable[[Claimed], Ownership], answer: Callable[[Claimed, int], Answer]) -> UUID:
    case: Claimed = cases.claimed(Pool.REPORTING)
    complete_case(ledger, owner(case), answer(case, 1), timeline={}, callback=None)
    return case.case_id


def test_another_tenants_case_looks_like_none_at_all(ledger: Ledger, completed: UUID) -> None:
    assert read_case(ledger, completed, tenant_id=TENANT) is not None

    assert read_case(ledger, completed, tenant_id=OTHER) is None
    assert read_answered_case(ledger, completed, Reader(OTHER, KEY)) is None
    assert read_result(ledger, completed, Reader(OTHER, KEY)) is None
    assert read_events(ledger, completed, tenant_id=OTHER) == []
    assert list_cases(ledger, OTHER, limit=10) == []


def test_a_case_is_read_as_it_stands(ledger: Ledger, cases: Cases) -> None:
    case = cases.claimed(client_reference="order-17")

    row = read_case(ledger, case.case_id, tenant_id=TENANT)

    assert row is not None
    assert (row.id, row.state, row.client_reference, row.version, row.attempt) == (case.case_id, "fetching", "order-17", 2, 1)
    assert row.accepted_at.utcoffset() == timedelta(0)


def test_a_case_comes_with_the_bytes_of_its_newest_result_or_with_none(ledger: Ledger, cases: Cases, completed: UUID) -> None:
    answered = read_answered_case(ledger, completed, MINE)
    waiting = read_answered_case(ledger, cases.accepted(), MINE)

    assert answered is not None
    assert waiting is not None
    assert (answered.state, answered.version, answered.result_body) == ("completed", 7, answer_of(completed).body)
    assert (waiting.state, waiting.version, waiting.result_body) == ("accepted", 1, None)


def test_a_result_is_read_by_its_version_or_the_newest(ledger: Ledger, cases: Cases, completed: UUID) -> None:
    newest = read_result(ledger, completed, MINE)

    assert newest is not None
    assert (newest.version, newest.kind, newest.outcome, newest.body) == (1, "final", "nothing_found", answer_of(completed).body)
    assert read_result(ledger, completed, MINE, version=1) == newest
    assert read_result(ledger, completed, MINE, version=2) is None
    assert read_result(ledger, cases.accepted(), MINE) is None


def reads(ledger: Ledger) -> list[tuple[UUID, int, UUID]]:
    rows = run(ledger.durable, text("SELECT case_id, result_version, key_id FROM result_reads ORDER BY id"))
    return [(row.case_id, row.result_version, row.key_id) for row in rows]


def test_each_read_of_a_result_is_written_down_and_no_other(ledger: Ledger, cases: Cases, completed: UUID) -> None:
    waiting = cases.accepted()
    read_answered_case(ledger, waiting, MINE)
    read_answered_case(ledger, completed, Reader(OTHER, UUID(int=8)))
    read_result(ledger, completed, Reader(OTHER, UUID(int=8)))
    read_result(ledger, completed, MINE, version=2)
    read_case(ledger, completed, tenant_id=TENANT)
    assert reads(ledger) == []

    read_answered_case(ledger, completed, MINE)
    read_result(ledger, completed, Reader(TENANT, UUID(int=7)))
    rows = read_answered_cases(ledger, [(completed, MINE), (waiting, MINE), (completed, Reader(TENANT, UUID(int=6)))])

    assert {row.id for row in rows} == {completed, waiting}
    assert [reader for _, _, reader in reads(ledger)[:2]] == [KEY, UUID(int=7)]
    assert {reader for _, _, reader in reads(ledger)[2:]} == {KEY, UUID(int=6)}
    assert {(case_id, version) for case_id, version, _ in reads(ledger)} == {(completed, 1)}


@pytest.mark.parametrize("table", ["results", "case_events", "result_reads"])
def test_the_database_lets_nobody_change_what_was_answered_or_written_down(ledger: Ledger, completed: UUID, table: str) -> None:
    read_answered_case(ledger, completed, MINE)

    for statement in (f"UPDATE {table} SET case_id = case_id", f"DELETE FROM {table}"):
        with pytest.raises(DatabaseError, match="only added"):
            run(ledger.durable, text(statement))


def test_pages_hold_every_case_once_newest_first(ledger: Ledger, cases: Cases) -> None:
    case_ids = [cases.accepted() for _ in range(7)]
    cases.accepted(tenant_id=OTHER)

    pages: list[list[UUID]] = []
    before = None
    while page := [row.id for row in list_cases(ledger, TENANT, limit=3, before=before)]:
        pages.append(page)
        before = page[-1]

    assert [len(page) for page in pages] == [3, 3, 1]
    assert [case_id for page in pages for case_id in page] == sorted(case_ids, reverse=True)


def test_a_page_is_the_same_when_cases_come_meanwhile(ledger: Ledger, cases: Cases) -> None:
    for _ in range(4):
        cases.accepted()
    last = list_cases(ledger, TENANT, limit=2)[-1].id
    second = [row.id for row in list_cases(ledger, TENANT, limit=2, before=last)]

    cases.accepted()

    assert [row.id for row in list_cases(ledger, TENANT, limit=2, before=last)] == second


def test_a_list_is_narrowed_by_state_lane_and_time_together(ledger: Ledger, cases: Cases) -> None:
    now = utc_now()
    old = cases.accepted(accepted_at=now - timedelta(hours=2))
    urgent = cases.accepted(lane=Lane.URGENT)
    claimed = cases.claimed(lane=Lane.URGENT).case_id

    def found(**filters: Any) -> list[UUID]:
        return [row.id for row in list_cases(ledger, TENANT, limit=10, filters=filters)]

    assert found() == [claimed, urgent, old]
    assert found(state="accepted") == [urgent, old]
    assert found(lane="urgent") == [claimed, urgent]
    assert found(since=now - timedelta(hours=1)) == [claimed, urgent]
    assert found(state="accepted", lane="urgent", since=now - timedelta(hours=1)) == [urgent]
    assert found(state="deferred") == []


def test_events_are_read_after_the_version_that_a_client_has_seen(ledger: Ledger, cases: Cases) -> None:
    case_id = cases.queued(Pool.INFERENCE)

    def seen(after: int) -> list[tuple[int, str]]:
        return [(row.version, row.entered_state) for row in read_events(ledger, case_id, tenant_id=TENANT, after_version=after)]

    assert seen(0) == [(1, "accepted"), (2, "fetching"), (3, "awaiting_inference")]
    assert seen(2) == [(3, "awaiting_inference")]
    assert seen(3) == []
