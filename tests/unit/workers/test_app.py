"""The settings of every process's Celery application, restated from what was measured."""

from itertools import pairwise
from typing import Any

import pytest
from pydantic import SecretStr

from pipeline.flow import CELERY_POOLS, Lane, Pool
from workers.app import PRIORITY, make_app, unacked_hash, unacked_index
from workers.settings import Settings
from workers.wiring import NotConfigured


@pytest.fixture
def settings() -> Settings:
    return Settings(redis_url=SecretStr("redis://127.0.0.1:1/0"))


def transport(settings: Settings, pool: Pool | None) -> dict[str, Any]:
    options: dict[str, Any] = make_app(settings, pool).conf.broker_transport_options
    return options


@pytest.mark.parametrize(("pool", "visibility_s"), [("intake", 30), ("inference", 12), ("reporting", 30), ("delivery", 60)])
def test_a_pool_has_names_and_a_visibility_of_its_own_and_looks_every_second(settings: Settings, pool: str, visibility_s: int) -> None:
    options = transport(settings, Pool(pool))

    assert options["visibility_timeout"] == visibility_s
    assert (options["unacked_restore_interval"], options["unacked_restore_throttle"], options["unacked_mutex_expire"]) == (1, 1, 5)
    assert (options["unacked_key"], options["unacked_index_key"], options["unacked_mutex_key"]) == (
        f"unacked.{pool}",
        f"unacked_index.{pool}",
        f"unacked_mutex.{pool}",
    )
    assert (unacked_hash(Pool(pool)), unacked_index(Pool(pool))) == (options["unacked_key"], options["unacked_index_key"])


def test_no_two_pools_share_a_key(settings: Settings) -> None:
    names = [transport(settings, pool)[name] for pool in CELERY_POOLS for name in ("unacked_key", "unacked_index_key", "unacked_mutex_key")]

    assert len(set(names)) == 12


@pytest.mark.parametrize("pool", [*CELERY_POOLS, None])
def test_every_wait_for_redis_has_an_end(settings: Settings, pool: Pool | None) -> None:
    options = transport(settings, pool)

    assert (options["socket_timeout"], options["socket_connect_timeout"], options["socket_keepalive"]) == (
        1 if pool is None else 2,
        1,
        True,
    )
    assert options["health_check_interval"] == 2
    assert (options["max_retries"], options["interval_start"], options["interval_max"]) == (1, 0, 0.1)


@pytest.mark.parametrize("pool", [*CELERY_POOLS, None])
def test_messages_are_json_acknowledged_late_and_never_retried_by_celery(settings: Settings, pool: Pool | None) -> None:
    conf = make_app(settings, pool).conf

    assert (conf.accept_content, conf.task_serializer) == (["json"], "json")
    assert (conf.task_acks_late, conf.task_reject_on_worker_lost, conf.worker_prefetch_multiplier) == (True, False, 1)
    assert (conf.task_ignore_result, conf.result_backend, conf.task_publish_retry) == (True, None, False)


def test_who_is_more_urgent_has_the_lower_number() -> None:
    assert PRIORITY == {Lane.URGENT: 0, Lane.ROUTINE: 6, Lane.COMPENSATION: 9}
    assert all(first < second for first, second in pairwise(PRIORITY[lane] for lane in Lane))


def test_a_message_without_a_priority_is_routine(settings: Settings) -> None:
    assert make_app(settings).conf.task_default_priority == PRIORITY[Lane.ROUTINE]


def test_two_applications_in_one_process_do_not_share_settings(settings: Settings) -> None:
    inference, intake = make_app(settings, Pool.INFERENCE), make_app(settings, Pool.INTAKE)

    assert inference.conf.broker_transport_options["visibility_timeout"] == 12
    assert intake.conf.broker_transport_options["visibility_timeout"] == 30


def test_without_a_redis_there_is_no_application() -> None:
    with pytest.raises(NotConfigured, match="SECONDREAD_REDIS_URL"):
        make_app(Settings(redis_url=None))
