"""Applications on a real Valkey, and addresses where a Redis is absent or frozen."""

import socket
from collections.abc import Iterator

import pytest
import redis
from celery import Celery
from pydantic import SecretStr

from workers.app import make_app
from workers.settings import Settings


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
