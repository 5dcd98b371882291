"""A deployment that could lose or double work does not start: the checks stand before the first process."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from pydantic import SecretStr

from workers.deployment import Misconfigured, deployment
from workers.embedded import checks
from workers.settings import Settings

pytestmark = pytest.mark.services


@pytest.fixture
def ours(redis_url: str, database_url: str, server_folder: Path) -> dict[str, Any]:
    """Settings that are in order, with servers that somebody else has started."""
    return {
        "redis_url": SecretStr(redis_url),
        "database_url": SecretStr(database_url),
        "state_dir": server_folder / "state",
        "gateway_port": 0,
        "metrics_port": 0,
    }


def refusal(settings: Settings) -> str:
    """What a start says instead of starting anything."""
    begun: list[str] = []
    with deployment(settings, lambda name, _state: begun.append(name)) as refused, pytest.raises(Misconfigured) as caught:
        refused.start()
    assert begun == []
    return str(caught.value)


@pytest.fixture
def evicting(redis_url: str) -> Iterator[None]:
    with redis.Redis.from_url(redis_url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        yield
        client.config_set("maxmemory-policy", "noeviction")


@pytest.mark.usefixtures("evicting")
def test_a_redis_that_may_evict_queues(ours: dict[str, Any]) -> None:
    assert "set maxmemory-policy to noeviction" in refusal(Settings(**ours))


def test_work_that_may_outlast_its_messages_visibility(ours: dict[str, Any]) -> None:
    assert "A message of the pool intake comes back after 30 s" in refusal(Settings(**ours, decode_timeout_s=25))


def test_a_transport_that_cannot_sweep_every_second(ours: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "KOMBU_AT_LEAST", (99, 0))

    assert "kombu" in refusal(Settings(**ours))
