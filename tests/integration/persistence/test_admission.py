"""How a case enters the ledger: one commit, once for each key, in one tenant."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from pipeline.deadline import utc_now
from pipeline.errors import LedgerUnavailable
from pipeline.flow import Lane
from pipeline.persistence.ledger.admission import (
    Accepted,
    ApiKey,
    KeyReused,
    NewCase,
    accept_cases,
    add_api_key,
    add_tenant,
    find_api_key,
    find_by_key,
)
from pipeline.persistence.ledger.cases import read_case
from pipeline.persistence.ledger.engine import Ledger, open_ledger, run
from tests.integration.persistence.singly import accept_case

pytestmark = pytest.mark.services

Cases = Any
"""The factory of `conftest.py`."""


def test_an_accepted_case_stands_with_everything_that_was_asked(ledger: Ledger, cases: Cases) -> None:
    new: NewCase = cases.new(
        lane=Lane.URGENT, client_reference="order-17", endpoint_id=uuid4(), traceparent="00-" + "1" * 32 + "-" + "2" * 16 + "-01"
    )

    accepted = accept_case(ledger, new)

    row = cases.row(new.id)
    assert (accepted.case_id, accepted.publish_no, accepted.deadline_at, accepted.is_replay) == (
        new.id,
        row.publish_no,
        new.deadline_at,
        False,
    )
    assert (row.state, row.lane, row.version, row.attempt, row.tries, row.result_version) == ("accepted", "urgent", 1, 0, 0, 0)
    assert (row.tenant_id, row.client_reference, row.endpoint_id, row.traceparent) == (
        new.tenant_id,
        "order-17",
        new.endpoint_id,
        new.traceparent,
    )
    assert (row.accepted_at, row.deadline_at, row.changed_at) == (new.accepted_at, new.deadline_at, new.accepted_at)
    assert row.input == new.input.model_dump(mode="json")
    assert (row.is_preliminary, row.ended_at, row.failure, row.work, row.timeline) == (False, None, None, {}, {})


def test_case_key_and_first_event_are_one_commit(ledger: Ledger, cases: Cases) -> None:
    new = cases.new()

    accept_case(ledger, new)

    (row,) = run(
        ledger.durable,
        text("""
SELECT c.xmin::text AS of_case, k.xmin::text AS of_key, e.xmin::text AS of_event
FROM cases c JOIN idempotency_keys k ON k.case_id = c.id JOIN case_events e ON e.case_id = c.id WHERE c.id = :id"""),
        id=new.id,
    )
    assert row.of_case == row.of_key == row.of_event
    assert cases.events(new.id) == [(1, None, "accepted")]


def test_nothing_stands_when_a_part_cannot(ledger: Ledger, cases: Cases) -> None:
    first = cases.new()
    accept_case(ledger, first)

    with pytest.raises(Exception, match="cases_pkey"):
        accept_case(ledger, replace(first, idempotency_key="another"))

    assert [cases.count(table) for table in ("cases", "idempotency_keys", "case_events")] == [1, 1, 1]


def test_the_same_key_with_the_same_request_gives_the_first_case_again(ledger: Ledger, cases: Cases) -> None:
    first = accept_case(ledger, cases.new(idempotency_key="k"))

    again = accept_case(ledger, cases.new(idempotency_key="k", deadline_at=utc_now() + timedelta(seconds=99)))

    assert again == replace(first, is_replay=True)
    assert (cases.count("cases"), cases.count("case_events")) == (1, 1)


def test_the_same_key_with_another_request_is_refused(ledger: Ledger, cases: Cases) -> None:
    accept_case(ledger, cases.new(idempotency_key="k"))

    with pytest.raises(KeyReused):
        accept_case(ledger, cases.new(idempotency_key="k", fingerprint=b"g" * 32))

    assert cases.count("cases") == 1


def test_cases_that_come_together_are_one_commit_and_each_gets_its_own_answer(ledger: Ledger, cases: Cases) -> None:
    known = accept_case(ledger, cases.new(idempotency_key="known"))
    asked = [
        cases.new(lane=Lane.URGENT),
        cases.new(idempotency_key="known"),
        cases.new(idempotency_key="known", fingerprint=b"g" * 32),
        cases.new(idempotency_key="twice"),
        cases.new(idempotency_key="twice"),
        cases.new(tenant_id=UUID(int=2), idempotency_key="known"),
    ]

    outcomes = accept_cases(ledger, asked)

    assert isinstance(outcomes[2], KeyReused)
    accepted = [outcome for outcome in outcomes if isinstance(outcome, Accepted)]
    first, again, one, other, theirs = accepted
    assert (first.case_id, first.is_replay) == (asked[0].id, False)
    assert again == replace(known, is_replay=True)
    assert one.case_id == other.case_id
    assert [one.is_replay, other.is_replay] == [False, True]
    assert (theirs.case_id, theirs.is_replay) == (asked[5].id, False)
    assert cases.row(first.case_id).lane == "urgent"
    made = [first.case_id, one.case_id, theirs.case_id]
    (commits,) = run(ledger.durable, text("SELECT count(DISTINCT xmin::text) AS n FROM cases WHERE id = ANY(:ids)"), ids=made)
    assert (commits.n, cases.count("cases"), cases.count("case_events")) == (1, 4, 4)


def test_fifty_threads_with_one_key_make_one_case(ledger: Ledger, cases: Cases) -> None:
    with ThreadPoolExecutor(50) as pool:
        accepted = list(pool.map(lambda new: accept_case(ledger, new), [cases.new(idempotency_key="k") for _ in range(50)]))

    assert len({each.case_id for each in accepted}) == 1
    assert sorted(each.is_replay for each in accepted) == [False] + [True] * 49
    assert (cases.count("cases"), cases.count("idempotency_keys")) == (1, 1)


def test_two_tenants_may_use_one_key(ledger: Ledger, cases: Cases) -> None:
    mine, theirs = cases.new(idempotency_key="k"), cases.new(idempotency_key="k", tenant_id=UUID(int=2), fingerprint=b"g" * 32)

    accepted = [accept_case(ledger, new) for new in (mine, theirs)]

    assert [each.case_id for each in accepted] == [mine.id, theirs.id]
    assert [each.is_replay for each in accepted] == [False, False]
    assert read_case(ledger, mine.id, tenant_id=UUID(int=2)) is None


def test_a_key_is_found_before_any_work_is_done(ledger: Ledger, cases: Cases) -> None:
    new = cases.new(idempotency_key="k")
    accepted = accept_case(ledger, new)

    def found(key: str, tenant_id: UUID) -> Any:
        return find_by_key(ledger, tenant_id=tenant_id, key=key, fingerprint=new.fingerprint)

    assert found("k", new.tenant_id) == replace(accepted, is_replay=True)
    assert found("other", new.tenant_id) is None
    assert found("k", UUID(int=2)) is None


def test_each_acceptance_takes_a_higher_publish_number(ledger: Ledger, cases: Cases) -> None:
    numbers = [accept_case(ledger, cases.new()).publish_no for _ in range(5)]

    assert numbers == sorted(set(numbers))


def test_a_ledger_that_is_away_is_said_so_at_once(ledger_away: Ledger, cases: Cases) -> None:
    started = time.monotonic()

    with pytest.raises(LedgerUnavailable):
        accept_case(ledger_away, cases.new())

    assert time.monotonic() - started < 1


def test_a_ledger_that_lets_nobody_write_is_not_available(ledger_url: str, ledger: Ledger, cases: Cases) -> None:
    # A standby before its promotion, as a client sees it.
    standby = open_ledger(ledger_url)
    with standby.durable.connect() as connection:
        connection.execute(text("SET default_transaction_read_only = on"))

    with pytest.raises(LedgerUnavailable):
        accept_case(standby, cases.new())

    standby.close()
    assert cases.count("cases") == 0


def test_a_connection_that_the_server_ended_costs_one_error(ledger_url: str, ledger: Ledger, cases: Cases) -> None:
    restarted = open_ledger(ledger_url)
    (backend,) = run(restarted.durable, text("SELECT pg_backend_pid() AS pid"))
    run(ledger.durable, text("SELECT pg_terminate_backend(:pid, 2000)"), pid=backend.pid)

    with pytest.raises(LedgerUnavailable):
        accept_case(restarted, cases.new())

    assert not accept_case(restarted, cases.new()).is_replay
    restarted.close()


def test_a_ledger_without_a_free_connection_is_not_waited_for_long(ledger_url: str, cases: Cases, ledger: Ledger) -> None:
    crowded = open_ledger(ledger_url, connections=1)
    with crowded.durable.connect():
        started = time.monotonic()

        with pytest.raises(LedgerUnavailable):
            accept_case(crowded, cases.new())

        assert time.monotonic() - started < 4
    crowded.close()


def test_what_was_promised_waits_for_the_disk_and_hand_offs_do_not(ledger: Ledger) -> None:
    durabilities = [
        run(engine, text("SELECT current_setting('synchronous_commit') AS synchronous_commit"))[0][0]
        for engine in (ledger.durable, ledger.relaxed)
    ]

    assert durabilities == ["on", "off"]


def test_a_mistake_of_ours_is_not_taken_for_an_outage(ledger: Ledger) -> None:
    with pytest.raises(Exception, match="no_such_table") as raised:
        run(ledger.durable, text("SELECT * FROM no_such_table"))

    assert not isinstance(raised.value, LedgerUnavailable)


def test_a_tenant_is_made_once(ledger: Ledger) -> None:
    first = add_tenant(ledger, UUID(int=7), "radiology")

    assert first == UUID(int=7)
    assert add_tenant(ledger, UUID(int=8), "radiology") == first
    assert add_tenant(ledger, UUID(int=8), "cardiology") == UUID(int=8)


def test_an_api_key_is_found_by_its_hash_until_it_is_revoked(ledger: Ledger) -> None:
    key = ApiKey(UUID(int=3), UUID(int=1), frozenset({"cases:read", "cases:write"}))
    add_api_key(ledger, key, name="pacs", key_hash=b"h" * 32)

    assert find_api_key(ledger, b"h" * 32) == key
    assert find_api_key(ledger, b"i" * 32) is None

    run(ledger.durable, text("UPDATE api_keys SET revoked_at = now()"))

    assert find_api_key(ledger, b"h" * 32) is None


def test_a_connection_plans_a_statement_once(ledger_url: str, cases: Cases, ledger: Ledger) -> None:
    one = open_ledger(ledger_url, connections=1)
    case_id = cases.accepted()
    for _ in range(5):
        find_by_key(one, tenant_id=UUID(int=1), key=case_id.hex, fingerprint=b"f" * 32)

    prepared = run(one.durable, text("SELECT name, statement, generic_plans + custom_plans AS uses FROM pg_prepared_statements"))

    assert [row.uses for row in prepared if "idempotency_keys" in row.statement] == [5]
    one.close()
