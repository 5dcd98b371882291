"""A connection to PostgreSQL that goes deaf is noticed by whoever waits on it, and whoever comes later gets a new one."""

import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg2
import pytest
from sqlalchemy import text

from pipeline.errors import LedgerUnavailable
from pipeline.persistence.ledger import wire
from pipeline.persistence.ledger.engine import Ledger, open_ledger, run
from pipeline.persistence.ledger.leadership import Leadership
from tests.faults.proxy import Fault, FaultProxy, proxy_for
from tests.faults.wires import through
from workers.embedded.postgres import EmbeddedPostgres

pytestmark = pytest.mark.services

ASK = text("SELECT pg_backend_pid() AS pid")
SLACK_S = 10.0
"""For a machine that does other things."""


@pytest.fixture
def proxy(postgres: EmbeddedPostgres) -> Iterator[FaultProxy]:
    with proxy_for(urlsplit(postgres.url).port or 0) as proxy:
        yield proxy


@pytest.fixture
def ledger(postgres: EmbeddedPostgres, proxy: FaultProxy) -> Iterator[Ledger]:
    """One connection, through a proxy."""
    ledger = open_ledger(through(postgres.url, proxy), connections=1)
    yield ledger
    ledger.close()


def pid(ledger: Ledger) -> int:
    found: int = run(ledger.relaxed, ASK)[0].pid
    return found


def deafen(proxy: FaultProxy) -> None:
    """What is open hears and says nothing any more; what is opened now is well."""
    proxy.behave(Fault.SWALLOW)
    proxy.behave()


def test_a_statement_on_a_connection_that_went_deaf_fails_in_time_and_the_next_has_a_new_one(ledger: Ledger, proxy: FaultProxy) -> None:
    before = pid(ledger)
    deafen(proxy)
    begun = time.monotonic()

    with pytest.raises(LedgerUnavailable):
        pid(ledger)

    assert wire.SILENCE_LIMIT_S - 0.1 <= time.monotonic() - begun < wire.SILENCE_LIMIT_S + SLACK_S
    assert pid(ledger) != before


def test_a_connection_that_went_deaf_while_it_was_idle_is_replaced_before_anybody_waits_on_it(
    ledger: Ledger, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "IDLE_S", 0.0)
    before = pid(ledger)
    deafen(proxy)

    assert pid(ledger) != before


def test_a_connection_that_is_well_is_kept_however_long_it_was_idle(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "IDLE_S", 0.0)

    assert len({pid(ledger) for _ in range(5)}) == 1


def test_nobody_waits_for_a_server_that_takes_connections_and_says_nothing(ledger: Ledger, proxy: FaultProxy) -> None:
    proxy.behave(Fault.SWALLOW)
    begun = time.monotonic()

    with pytest.raises(LedgerUnavailable):
        pid(ledger)

    assert wire.CONNECT_LIMIT_S - 0.1 <= time.monotonic() - begun < wire.CONNECT_LIMIT_S + SLACK_S


def test_the_servers_own_word_about_a_statement_that_takes_too_long_is_heard_first(ledger: Ledger) -> None:
    with pytest.raises(LedgerUnavailable) as refused:
        run(ledger.relaxed, text("SELECT pg_sleep(60)"))

    assert "statement timeout" in str(refused.value.__cause__)


def test_a_leader_whose_connection_went_deaf_does_not_lead_and_can_lead_again(postgres: EmbeddedPostgres, proxy: FaultProxy) -> None:
    with Leadership(through(postgres.url, proxy), "wire-tests", silence_s=1.0) as leadership:
        assert leadership.is_leader()
        deafen(proxy)
        begun = time.monotonic()
        assert not leadership.is_leader()
        assert time.monotonic() - begun < SLACK_S
        until = time.monotonic() + 2 * SLACK_S
        # PostgreSQL ends the silent session, and with it the old lock, in its own time.
        while not leadership.is_leader():
            assert time.monotonic() < until


def test_connections_that_are_not_the_ledgers_wait_as_long_as_they_like(postgres: EmbeddedPostgres) -> None:
    connection = psycopg2.connect(postgres.url.replace("+psycopg2", ""))
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(%s)", (wire.SILENCE_LIMIT_S + 0.5,))
            assert cursor.fetchall() == [("",)]
    finally:
        connection.close()
