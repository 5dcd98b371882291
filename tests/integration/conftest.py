"""A real Valkey and a real PostgreSQL, one of each for the whole run, from the wheels: nothing needs to be installed."""

import os
import select
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from workers.embedded.postgres import EmbeddedPostgres
from workers.embedded.valkey import EmbeddedValkey


@pytest.fixture(scope="session")
def services_folder() -> Iterator[Path]:
    """A folder that the servers' user can reach: pytest's own are closed to everybody but us."""
    folder = Path(tempfile.mkdtemp(prefix="secondread-tests-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def server_folder(services_folder: Path) -> Path:
    """A new folder for a server of one test."""
    folder = Path(tempfile.mkdtemp(dir=services_folder))
    folder.chmod(0o711)
    return folder


@pytest.fixture(scope="session")
def valkey(services_folder: Path) -> Iterator[EmbeddedValkey]:
    """The Valkey of this run."""
    with EmbeddedValkey(services_folder / "valkey", is_durable=False) as server:
        yield server


@pytest.fixture(scope="session")
def postgres(services_folder: Path) -> Iterator[EmbeddedPostgres]:
    """The PostgreSQL of this run; `create_database` makes another empty database in it."""
    with EmbeddedPostgres(services_folder / "postgres", is_durable=False) as server:
        yield server


@pytest.fixture(scope="session")
def redis_url(valkey: EmbeddedValkey) -> str:
    """Where the Valkey of this run listens; tests share it (see `clean_redis`)."""
    return valkey.url


@pytest.fixture(scope="session")
def database_url(postgres: EmbeddedPostgres) -> str:
    """An empty database in the PostgreSQL of this run; tests share it."""
    return postgres.url


@pytest.fixture
def clean_redis(redis_url: str) -> str:
    """The same Valkey, with nothing in it."""
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()
    return redis_url


@pytest.fixture
def has_ended() -> Callable[[int], bool]:
    """Whether a process ends within five seconds; the kernel tells, for processes that are not our children too."""

    def wait(pid: int) -> bool:
        try:
            watched = os.pidfd_open(pid)
        except ProcessLookupError:
            return True
        try:
            return bool(select.select([watched], [], [], 5.0)[0])
        finally:
            os.close(watched)

    return wait
