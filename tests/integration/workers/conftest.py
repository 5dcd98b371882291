"""Applications on a real Valkey, and addresses where a Redis is absent or frozen."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from celery import Celery
from pydantic import SecretStr

from migrations.run import migrate
from pipeline.flow import Pool
from tests.integration.workers.stub_cases import StubCases
from workers.app import make_app
from workers.embedded.postgres import EmbeddedPostgres
from workers.flower_events import TaskEvents
from workers.group import Watch
from workers.leases import LeaseKeeper
from workers.settings import Settings
from workers.stage_task import PoolRuntime
from workers.wiring import open_services


@pytest.fixture
def app(clean_redis: str) -> Iterator[Celery]:
    """A publisher, such as the gateway."""
    with make_app(Settings(redis_url=SecretStr(clean_redis))) as app:
        yield app


@pytest.fixture
def client(clean_redis: str) -> Iterator["redis.Redis"]:
    with redis.Redis.from_url(clean_redis) as client:
        yield client


@pytest.fixture(params=["absent", "frozen"])
def unreachable(request: pytest.FixtureRequest) -> Iterator[Celery]:
    """A publisher whose Redis is not there, or takes the connection and says nothing."""
    with socket.socket() as address:
        address.bind(("127.0.0.1", 0))
        if request.param == "frozen":
            address.listen()
        with make_app(Settings(redis_url=SecretStr(f"redis://:x@127.0.0.1:{address.getsockname()[1]}/0"))) as app:
            yield app


@pytest.fixture(scope="session")
def stage_runs(postgres: EmbeddedPostgres) -> str:
    """A migrated database."""
    url = postgres.create_database("stage_run_tests")
    migrate(url)
    return url


@pytest.fixture
def runtime(stage_runs: str, clean_redis: str, tmp_path: Path) -> Iterator[PoolRuntime]:
    """What the tasks of a reporting process share."""
    settings = Settings(
        database_url=SecretStr(stage_runs), redis_url=SecretStr(clean_redis), state_dir=tmp_path, tensor_dir=tmp_path / "tensors"
    )
    with open_services(settings, role="reporting") as services:
        leases, watch = LeaseKeeper(services.ledger), Watch()
        yield PoolRuntime(Pool.REPORTING, make_app(settings, Pool.REPORTING), services, leases, watch, TaskEvents())
        watch.close()
        leases.close()


@pytest.fixture
def cases(runtime: PoolRuntime) -> StubCases:
    cases = StubCases(runtime.services.ledger)
    cases.empty()
    return cases
