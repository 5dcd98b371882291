"""A place for worker processes on a Valkey that a test may freeze, and the messages whose return takes a minute."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis
from celery import Celery
from pydantic import SecretStr

from migrations.run import migrate
from pipeline.flow import CELERY_POOLS, Pool
from pipeline.persistence.ledger.engine import open_ledger
from tests.faults.processes import await_ready, begin
from tests.faults.servers import Place
from tests.integration.transport.witness import Taken, await_notes, ring_witness, serve_witness, taken_from
from tests.integration.workers.stub_cases import StubCases
from workers.app import make_app
from workers.embedded.postgres import EmbeddedPostgres
from workers.embedded.valkey import EmbeddedValkey
from workers.settings import Settings

START_LIMIT_S = 180.0


class Crew:
    """Worker processes of one place, ended together."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._begun: list[tuple[BaseProcess, Path]] = []

    def begin(self, name: str, target: Callable[..., object], *arguments: Any) -> BaseProcess:
        """Start `target(*arguments)` under a name of the test's choice."""
        self._begun.append(begin(self._place, name, target, *arguments))
        return self._begun[-1][0]

    def start(self, name: str, target: Callable[..., object], *arguments: Any) -> BaseProcess:
        """The same, and wait until it works."""
        process = self.begin(name, target, *arguments)
        await_ready(*self._begun[-1])
        return process

    def await_all(self) -> None:
        """Wait until all work that were begun."""
        for process, ready in self._begun:
            await_ready(process, ready)

    def close(self) -> None:
        """End all that are left."""
        for process, _ in self._begun:
            process.kill()
        for process, _ in self._begun:
            process.join()


@pytest.fixture(scope="package")
def server(services_folder: Path) -> Iterator[EmbeddedValkey]:
    """A Valkey of these tests alone."""
    with EmbeddedValkey(services_folder / "transport-valkey", is_durable=False) as server:
        yield server


@pytest.fixture(scope="package")
def transport_database(postgres: EmbeddedPostgres) -> str:
    url = postgres.create_database("transport_tests")
    migrate(url)
    return url


@pytest.fixture
def place(server: EmbeddedValkey, transport_database: str, tmp_path: Path, cases: StubCases) -> Place:
    """An empty ledger and an empty Valkey."""
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
    cases.empty()
    return Place(tmp_path, transport_database, server.url)


@pytest.fixture
def cases(transport_database: str) -> Iterator[StubCases]:
    ledger = open_ledger(transport_database, connections=1)
    yield StubCases(ledger)
    ledger.close()


@pytest.fixture
def client(place: Place) -> Iterator["redis.Redis"]:
    with redis.Redis.from_url(place.redis_url) as client:
        yield client


@pytest.fixture
def publisher(place: Place) -> Iterator[Celery]:
    """Rings as the gateway does."""
    with publishing(place.redis_url) as app:
        yield app


@contextmanager
def publishing(url: str) -> Iterator[Celery]:
    """An application that only rings, on any Redis."""
    with make_app(Settings(redis_url=SecretStr(url))) as app:
        yield app


@pytest.fixture
def crew(place: Place) -> Iterator[Crew]:
    with closing(Crew(place)) as crew:
        yield crew


@contextmanager
def frozen(pid: int | None) -> Iterator[None]:
    """A process that stands still."""
    process = psutil.Process(pid)
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


@pytest.fixture(scope="package", autouse=True)
def died_at_work(services_folder: Path, transport_database: str) -> Iterator[dict[Pool, Taken]]:
    """In each pool, the message of a worker that was killed while another stood by. No sweeper runs.

    All four pools share one database of one Valkey, each with its own visibility. Begun with the first test and looked at
    by the last ones, since the longest visibility is a minute.
    """
    folder = services_folder / "visibility"
    folder.mkdir()
    with EmbeddedValkey(services_folder / "visibility-valkey", is_durable=False) as server:
        place = Place(folder, transport_database, server.url)
        with closing(Crew(place)) as crew, publishing(server.url) as app, redis.Redis.from_url(server.url) as client:
            pairs = {
                pool: [crew.begin(f"{pool.value}-{name}", serve_witness, pool, _notes(folder, pool)) for name in ("one", "other")]
                for pool in CELERY_POOLS
            }
            crew.await_all()
            yield {pool: _die_at_work(client, app, pool, _notes(folder, pool), pair) for pool, pair in pairs.items()}


def _notes(folder: Path, pool: Pool) -> Path:
    return folder / f"{pool.value}.notes"


def _die_at_work(client: "redis.Redis", app: Celery, pool: Pool, notes: Path, pair: Sequence[BaseProcess]) -> Taken:
    ring_witness(app, pool)
    (note,) = await_notes(notes, 1, within_s=START_LIMIT_S)
    taken = taken_from(client, pool, note, notes)
    (holder,) = [each for each in pair if each.pid == note.pid]
    holder.kill()
    holder.join()
    return taken
