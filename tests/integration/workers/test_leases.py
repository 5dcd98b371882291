"""Signs of life, as the ledger sees them: a trigger tells of every renewal, so that nothing is waited for in vain."""

import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from uuid import UUID

import psycopg2
import psycopg2.extensions
import pytest
from sqlalchemy import text

from migrations.run import migrate
from pipeline.persistence.ledger.engine import Ledger, open_ledger, run
from tests.switches import switches_of
from workers.embedded.postgres import EmbeddedPostgres
from workers.leases import LeaseKeeper

pytestmark = pytest.mark.services

FIRST, SECOND = UUID(int=1), UUID(int=2)
TELL = """
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_notify('renewed', NEW.id::text); RETURN NEW; END $$;
CREATE TRIGGER told AFTER UPDATE OF lease_until ON cases FOR EACH ROW EXECUTE FUNCTION tell()
"""
CLAIMED = """
INSERT INTO cases (id, tenant_id, state, lane, input, accepted_at, deadline_at, changed_at, attempt, claimed_by, lease_until,
                   publish_no, published_at, due_at)
VALUES (:id, :id, 'fetching', 'routine', '{}', now(), now(), now(), 1, 'w1', now(), 1, now(), now())
"""

Heard = Callable[[float], set[UUID]]


@pytest.fixture
def url(postgres: EmbeddedPostgres) -> str:
    """A ledger with two claimed cases that tells of renewals."""
    url = postgres.create_database("lease_tests")
    migrate(url)
    return url


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    ledger = open_ledger(url, connections=1)
    with ledger.relaxed.connect() as connection:
        connection.exec_driver_sql("DROP TRIGGER IF EXISTS told ON cases; DROP FUNCTION IF EXISTS tell; DELETE FROM cases")
        connection.exec_driver_sql(TELL)
    for case_id in (FIRST, SECOND):
        run(ledger.relaxed, text(CLAIMED), id=case_id)
    yield ledger
    ledger.close()


@pytest.fixture
def heard(url: str, ledger: Ledger) -> Iterator[Heard]:
    """Waits for a renewal; gives the cases that were renewed, none after the time that it is told."""
    connection = psycopg2.connect(url.replace("+psycopg2", ""))
    connection.set_isolation_level(psycopg2.extensions.ISOLATION_LEVEL_AUTOCOMMIT)
    with connection.cursor() as cursor:
        cursor.execute("LISTEN renewed")

    def wait(limit_s: float) -> set[UUID]:
        if not connection.notifies and select.select([connection], [], [], limit_s)[0]:
            connection.poll()
        renewed = {UUID(notice.payload) for notice in connection.notifies}
        connection.notifies.clear()
        return renewed

    yield wait
    connection.close()


@pytest.fixture
def keeper(ledger: Ledger) -> Iterator[LeaseKeeper]:
    keeper = LeaseKeeper(ledger)
    yield keeper
    keeper.close()


def test_what_is_held_is_renewed_together_after_two_seconds_whoever_comes_meanwhile(keeper: LeaseKeeper, heard: Heard) -> None:
    started = time.monotonic()

    with keeper.holding([(FIRST, 1)]):
        early = heard(0.3)
        with keeper.holding([(SECOND, 1)]):
            renewed = heard(5.0)
            waited_s = time.monotonic() - started

    assert (early, renewed) == (set(), {FIRST, SECOND})
    assert 1.5 < waited_s < 3


def test_a_case_claimed_anew_is_kept_when_its_old_claim_is_let_go_and_the_others_are_not(keeper: LeaseKeeper, heard: Heard) -> None:
    with ExitStack() as claims:
        with keeper.holding([(FIRST, 0), (SECOND, 1)]):
            claims.enter_context(keeper.holding([(FIRST, 1)]))

        assert heard(5.0) == {FIRST}


def test_claims_that_come_and_go_do_not_wake_the_keeper(ledger: Ledger) -> None:
    before = set(threading.enumerate())
    keeper = LeaseKeeper(ledger)
    (mine,) = set(threading.enumerate()) - before
    begun = switches_of(mine)

    for _ in range(200):
        with keeper.holding([(FIRST, 1)]):
            time.sleep(0.001)
    switches = switches_of(mine) - begun
    keeper.close()

    # It renews each two seconds, and is not told of each claim.
    assert switches < 50
