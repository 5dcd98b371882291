"""What is refused of the pools' broker settings; and that ours are not."""

from typing import Any

import pytest
from pydantic import SecretStr

from workers.deployment import pool_transports
from workers.embedded.transport_checks import PoolTransport, check_transports
from workers.settings import Settings


def transport(pool: str, *, held_s: float = 10, **options: Any) -> PoolTransport:
    """A pool as it should be, but for some options."""
    names = {"unacked_key": f"u.{pool}", "unacked_index_key": f"i.{pool}", "unacked_mutex_key": f"m.{pool}"}
    return PoolTransport(pool, {"visibility_timeout": 30} | names | options, held_s)


def settings(**changes: float) -> Settings:
    return Settings(redis_url=SecretStr("redis://127.0.0.1:1/0"), **changes)  # type: ignore[arg-type]


def test_our_own_settings_are_not_refused() -> None:
    assert check_transports(pool_transports(settings())) == []


@pytest.mark.parametrize("option", ["unacked_key", "unacked_index_key", "unacked_mutex_key"])
def test_pools_that_share_a_key_are_refused_by_name(option: str) -> None:
    same: dict[str, Any] = {option: "same"}
    pools = [transport("intake", **same), transport("inference"), transport("reporting", **same)]

    (finding,) = check_transports(pools)

    assert finding.level == "refuse"
    assert "intake and reporting share same" in finding.sentence


def test_what_is_one_pools_hash_is_not_anothers_index() -> None:
    assert len(check_transports([transport("a", unacked_key="x"), transport("b", unacked_index_key="x")])) == 1


def test_where_nothing_is_set_all_share_the_librarys_names() -> None:
    first, second = (PoolTransport(pool, {}, held_s=10) for pool in ("intake", "delivery"))

    (finding,) = check_transports([first, second])

    assert "share unacked, unacked_index, unacked_mutex" in finding.sentence


@pytest.mark.parametrize(("visibility_s", "held_s", "count"), [(30, 29.9, 0), (30, 30, 1), (30, 31, 1), (12, 0, 0)])
def test_a_message_must_not_come_back_while_it_is_worked_on(visibility_s: float, held_s: float, count: int) -> None:
    findings = check_transports([transport("intake", held_s=held_s, visibility_timeout=visibility_s)])

    assert [finding.level for finding in findings] == ["refuse"] * count


def test_a_decoder_that_may_take_longer_than_the_visibility_is_refused() -> None:
    assert check_transports(pool_transports(settings(decode_timeout_s=21.9))) == []

    (finding,) = check_transports(pool_transports(settings(decode_timeout_s=22)))

    assert "the pool intake comes back after 30 s, while its work may take 30 s" in finding.sentence
