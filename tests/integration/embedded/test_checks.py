"""The checks against real servers, good ones and bad ones."""

from collections.abc import Iterator
from datetime import timedelta

import psycopg2
import pytest
import redis

from pipeline.deadline import utc_now
from workers.embedded.checks import Finding, check_all, check_postgres, check_redis
from workers.embedded.postgres import EmbeddedPostgres
from workers.embedded.valkey import EmbeddedValkey

pytestmark = pytest.mark.services


def said(findings: list[Finding], level: str) -> str:
    return " ".join(finding.sentence for finding in findings if finding.level == level)


@pytest.fixture
def settable(redis_url: str) -> Iterator[redis.Redis]:
    """The Valkey of this run; what a test sets is set back."""
    with redis.Redis.from_url(redis_url) as client:
        yield client
        client.config_set("maxmemory-policy", "noeviction")


def test_our_own_servers_are_not_refused(redis_url: str, database_url: str) -> None:
    assert said(check_all(redis_url=redis_url, database_url=database_url, now=utc_now), "refuse") == ""


def test_servers_that_forget_are_warned_of(redis_url: str, database_url: str) -> None:
    warned = said(check_all(redis_url=redis_url, database_url=database_url, now=utc_now), "warn")
    assert "appendonly" in warned
    assert "fsync" in warned


def test_a_server_that_evicts_is_refused(redis_url: str, settable: redis.Redis) -> None:
    settable.config_set("maxmemory-policy", "allkeys-lru")
    assert "set maxmemory-policy to noeviction" in said(check_redis(redis_url), "refuse")


def test_a_wrong_redis_password_is_refused_and_not_shown(valkey: EmbeddedValkey) -> None:
    sentence = said(check_redis(valkey.url.replace(valkey.address.password, "guessed")), "refuse")
    assert "refuses the password" in sentence
    assert "guessed" not in sentence


def test_a_wrong_database_password_is_refused_and_not_shown(postgres: EmbeddedPostgres) -> None:
    sentence = said(check_postgres(postgres.url.replace(postgres.address.password, "guessed"), now=utc_now), "refuse")
    assert "password authentication failed" in sentence
    assert "guessed" not in sentence


@pytest.mark.parametrize(("ours_s", "side"), [(-2.0, "ahead of"), (2.0, "behind")])
def test_a_clock_that_differs_is_refused(database_url: str, ours_s: float, side: str) -> None:
    findings = check_postgres(database_url, now=lambda: utc_now() + timedelta(seconds=ours_s))
    assert f"clock is 2.0 s {side} this machine's" in said(findings, "refuse")


@pytest.mark.parametrize(
    ("name", "create", "advice"),
    [
        ("latin", "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0", "ENCODING 'UTF8'"),
        ("hasty", "ALTER DATABASE hasty SET synchronous_commit = off", "synchronous_commit to on"),
        ("read_only", "ALTER DATABASE read_only SET default_transaction_read_only = on", "name the primary"),
    ],
)
def test_a_database_that_is_no_ledger_is_refused(postgres: EmbeddedPostgres, name: str, create: str, advice: str) -> None:
    if create.startswith("ALTER"):
        postgres.create_database(name)
    connection = psycopg2.connect(postgres.url.replace("+psycopg2", ""))
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute(create)
    connection.close()
    url = postgres.url.removesuffix("secondread") + name
    assert advice in said(check_postgres(url, now=utc_now), "refuse")
