"""A migrated ledger, empty before each test, and factories for the cases in it."""

import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import redis
from celery import Celery
from pydantic import SecretStr
from sqlalchemy import text
from uuid6 import uuid7

from migrations.run import migrate
from pipeline.cases.states import POOL_STATES, CaseState
from pipeline.deadline import utc_now
from pipeline.flow import Lane, Pool
from pipeline.inference.card import SHIPPED_MODELS, find_cards
from pipeline.persistence.ledger.admission import NewCase
from pipeline.persistence.ledger.claims import Claimed, HandOn, claim_cases, hand_on
from pipeline.persistence.ledger.clock import LedgerClock
from pipeline.persistence.ledger.deliveries import Endpoint, add_endpoint
from pipeline.persistence.ledger.engine import Ledger, open_ledger, run
from pipeline.persistence.ledger.outcomes import Answer, Callback, Ownership
from pipeline.persistence.ledger.tables import METADATA
from pipeline.persistence.uploads import ObjectPlace
from pipeline.persistence.waiting_line import WaitingLine, open_redis
from pipeline.tensors.memory import MemoryStore
from schemas.work import CaseInput, ReceivedInstance
from tests.integration.persistence.answers import answer_of
from tests.integration.persistence.singly import accept_case
from workers.app import make_app
from workers.embedded.postgres import EmbeddedPostgres
from workers.settings import Settings
from workers.wiring import Services

TENANT = UUID(int=1)


def new_id() -> UUID:
    return UUID(bytes=uuid7().bytes)


@pytest.fixture(scope="session")
def ledger_url(postgres: EmbeddedPostgres) -> str:
    """A database of its own, migrated."""
    url = postgres.create_database("ledger_tests")
    migrate(url)
    return url


ONLY_ADDED = {"results", "case_events", "result_reads"}


@pytest.fixture(scope="session")
def session_ledger(ledger_url: str) -> Iterator[Ledger]:
    ledger = open_ledger(ledger_url, connections=8, application="secondread tests")
    yield ledger
    ledger.close()


@pytest.fixture
def ledger(session_ledger: Ledger) -> Ledger:
    """The ledger, with nothing in it."""
    with session_ledger.relaxed.connect() as connection:
        # Whose rows are only added can be emptied as a whole, by the owner.
        connection.exec_driver_sql(f"TRUNCATE {', '.join(ONLY_ADDED)}")
        for table in METADATA.tables.keys() - ONLY_ADDED - {"retry_budgets"}:
            connection.exec_driver_sql(f"DELETE FROM {table}")
        connection.exec_driver_sql("UPDATE retry_budgets SET tokens = DEFAULT")
    return session_ledger


@pytest.fixture
def ledger_away() -> Iterator[Ledger]:
    """A ledger whose address nobody listens on: bound, so that nobody can begin to."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        ledger = open_ledger(f"postgresql+psycopg2://secondread:x@127.0.0.1:{bound.getsockname()[1]}/secondread")
        yield ledger
        ledger.close()


class Cases:
    """Makes cases and moves them along; what it does itself is done with the statements under test."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def new(self, **changes: Any) -> NewCase:
        """A case as the gateway would bring it."""
        now = utc_now()
        case_id = new_id()
        given: dict[str, Any] = {
            "id": case_id,
            "tenant_id": TENANT,
            "lane": Lane.ROUTINE,
            "input": CaseInput(instances=(ReceivedInstance(key=f"{case_id.hex}/0000.dcm", digest="0" * 64, size_bytes=1),)),
            "accepted_at": now,
            "deadline_at": now + timedelta(seconds=30),
            "idempotency_key": case_id.hex,
            "fingerprint": b"f" * 32,
        }
        return NewCase(**(given | changes))

    def accepted(self, **changes: Any) -> UUID:
        """A case that waits for intake."""
        return accept_case(self._ledger, self.new(**changes)).case_id

    def claimed(self, pool: Pool = Pool.INTAKE, *, worker: str = "w1", **changes: Any) -> Claimed:
        """A case that `worker` has claimed for a pool."""
        case_id = self.queued(pool, **changes)
        (claimed,) = claim_cases(self._ledger, [case_id], pool=pool, worker=worker, seen_no=1)
        return claimed

    def queued(self, pool: Pool, **changes: Any) -> UUID:
        """A case that waits for a pool."""
        case_id = self.accepted(**changes)
        way = [Pool.INTAKE, Pool.INFERENCE, Pool.REPORTING]
        for at, onward in pairwise(way[: way.index(pool) + 1]):
            (claimed,) = claim_cases(self._ledger, [case_id], pool=at, worker="way", seen_no=0)
            moved = hand_on(
                self._ledger,
                [HandOn(case_id, claimed.attempt, {}, {})],
                left=POOL_STATES[at].claimed,
                entered=POOL_STATES[onward].queued,
                worker="way",
            )
            assert len(moved) == 1
        return case_id

    def lapse(self, *case_ids: UUID) -> None:
        """Let the leases of these cases run out."""
        run(
            self._ledger.relaxed,
            text("UPDATE cases SET lease_until = clock_timestamp() - interval '1 millisecond' WHERE id = ANY(:ids)"),
            ids=list(case_ids),
        )

    def age(self, *case_ids: UUID, seconds: float) -> None:
        """Let these cases have been published so long ago."""
        run(
            self._ledger.relaxed,
            text("""
UPDATE cases SET published_at = published_at - make_interval(secs => :seconds), due_at = due_at - make_interval(secs => :seconds)
WHERE id = ANY(:ids)"""),
            ids=list(case_ids),
            seconds=seconds,
        )

    def row(self, case_id: UUID) -> Any:
        """The whole row."""
        (row,) = run(self._ledger.relaxed, text("SELECT * FROM cases WHERE id = :id"), id=case_id)
        return row

    def events(self, case_id: UUID) -> list[tuple[int, str | None, str]]:
        """(version, left, entered) of each change, in the order in which it was logged."""
        rows = run(self._ledger.relaxed, text("SELECT * FROM case_events WHERE case_id = :id ORDER BY id"), id=case_id)
        return [(row.version, row.left_state, row.entered_state) for row in rows]

    def count(self, table: str) -> int:
        """Rows of a table."""
        (row,) = run(self._ledger.relaxed, text(f"SELECT count(*) AS n FROM {table}"))
        rows: int = row.n
        return rows


@pytest.fixture
def cases(ledger: Ledger) -> Cases:
    return Cases(ledger)


@pytest.fixture
def owner() -> Callable[[Claimed], Ownership]:
    """The ownership of a case claimed by reporting."""
    return lambda case: Ownership(case.case_id, case.attempt, CaseState.POSTPROCESSING, "w1")


@pytest.fixture
def answer() -> Callable[[Claimed, int], Answer]:
    """A version of a case's result."""
    return lambda case, version: answer_of(case.case_id, version, kind="final" if version == 1 else "amended")


@pytest.fixture
def endpoint(ledger: Ledger) -> Endpoint:
    """A webhook endpoint of the tenant."""
    made = Endpoint(new_id(), TENANT, "https://ris.example/hooks", ("whsec_one", "whsec_two"))
    add_endpoint(ledger, made)
    return made


@pytest.fixture
def callback(endpoint: Endpoint) -> Callable[[], Callback]:
    """A new event for that endpoint."""
    return lambda: Callback(new_id(), endpoint.id, "case.completed", '{"type": "case.completed"}')


@pytest.fixture
def services(ledger: Ledger, clean_redis: str, tmp_path: Path) -> Iterator[Services]:
    """What a sweeper works with."""
    client = open_redis(clean_redis)
    yield Services(
        settings=Settings(redis_url=SecretStr(clean_redis), state_dir=tmp_path),
        worker="sweeper@test",
        ledger=ledger,
        clock=LedgerClock(ledger),
        redis=client,
        tensors=MemoryStore(capacity_bytes=1),
        uploads=ObjectPlace(str(tmp_path)),
        sources={},
        cards=find_cards(SHIPPED_MODELS),
    )
    client.close()


@pytest.fixture
def app(services: Services) -> Iterator[Celery]:
    """Its publisher."""
    with make_app(services.settings) as app:
        yield app


@pytest.fixture
def client(clean_redis: str) -> Iterator["redis.Redis"]:
    with open_redis(clean_redis) as client:
        yield client


@pytest.fixture
def line(client: "redis.Redis") -> WaitingLine:
    return WaitingLine(client, model="breast-us:1.0", bucket="256")
