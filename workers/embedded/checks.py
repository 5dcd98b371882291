"""What must be true of Redis, PostgreSQL and this installation before work begins; whoever started the servers."""

import importlib.metadata
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import psycopg2
import psycopg2.extensions
import redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, RedisError
from redis.retry import Retry

REDIS_AT_LEAST = (6, 2)
VALKEY_AT_LEAST = (7, 2)
KOMBU_AT_LEAST = (5, 7)
POSTGRES_AT_LEAST = 14
CLOCK_SKEW_LIMIT_S = 0.5
"""Deadlines are compared with the database's clock, the broker's sweep with each host's own."""

_CONNECT_LIMIT_S = 3

Level = Literal["refuse", "warn"]
Answers = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it must be (`refuse`: do not start) or should be (`warn`)."""

    level: Level
    sentence: str
    """What is wrong and what to change. Holds no password."""


def redact(url: str) -> str:
    """Give the URL, or a list of them with `;` between, for human eyes: every password is three stars."""
    return ";".join(_redact_one(part) for part in re.split(r";(?=[\w+.-]+://)", url))


def _redact_one(url: str) -> str:
    # Up to the last @, since a password that nobody escaped may hold any sign; to hide too much is the lesser evil.
    hidden = re.sub(r"(://[^:@/]*):.*@", r"\1:***@", url)
    return re.sub(r"(?i)([?&][^=&]*pass[^=&]*=)[^&]*", r"\1***", hidden)


def check_redis(url: str) -> list[Finding]:
    """Ask the broker about its version, its memory policy and its persistence."""
    place = redact(url)
    if url.partition("://")[0] not in {"redis", "rediss", "unix"}:
        return [Finding("warn", f"Redis at {place} is not checked: only redis://, rediss:// and unix:// addresses are.")]
    try:
        facts = _ask_redis(url)
    except AuthenticationError:
        return [Finding("refuse", f"Redis at {place} refuses the password: correct the one in the URL.")]
    except (RedisError, ValueError) as error:
        return [Finding("refuse", f"Redis at {place} does not answer ({type(error).__name__}): start it, or correct the URL.")]
    return [*_judge_redis(facts, place)]


def _ask_redis(url: str) -> dict[str, str]:
    once = Retry(NoBackoff(), 0)
    client = redis.Redis.from_url(url, socket_connect_timeout=_CONNECT_LIMIT_S, socket_timeout=_CONNECT_LIMIT_S, retry=once)
    # INFO and not CONFIG GET: managed services do not allow the latter.
    try:
        answer: Mapping[str, Any] = client.info()
    finally:
        client.close()
    return {name: str(value) for name, value in answer.items()}


def _judge_redis(facts: Answers, place: str) -> Iterator[Finding]:
    is_valkey = facts.get("server_name") == "valkey"
    name, at_least = ("Valkey", VALKEY_AT_LEAST) if is_valkey else ("Redis", REDIS_AT_LEAST)
    version = facts["valkey_version" if is_valkey else "redis_version"]
    if _numbers(version) < at_least:
        yield Finding("refuse", f"{name} at {place} is {version}: upgrade it to {_dotted(at_least)} or later.")
    if facts.get("role") not in {None, "master"}:
        yield Finding("refuse", f"{name} at {place} is a replica, which cannot be written to: name the primary in the URL.")
    if (policy := facts.get("maxmemory_policy", "unknown")) != "noeviction":
        yield Finding("refuse", f"{name} at {place} may evict queues (maxmemory-policy {policy}): set maxmemory-policy to noeviction.")
    if facts.get("maxmemory") == "0":
        yield Finding("warn", f"{name} at {place} has no memory limit: set maxmemory below what the host can give.")
    if facts.get("aof_enabled") != "1":
        yield Finding(
            "warn", f"{name} at {place} forgets its queues in a crash, and cases then wait for the sweeper: set appendonly to yes."
        )


def check_postgres(url: str, *, now: Callable[[], datetime]) -> list[Finding]:
    """Ask the ledger about its version, its encoding, its durability and its clock; `now` is ours."""
    place = redact(url)
    dsn = re.sub(r"^postgres(ql)?(\+\w+)?://", "postgresql://", url)
    try:
        password = psycopg2.extensions.parse_dsn(dsn).get("password")
    except psycopg2.Error:
        return [Finding("refuse", f"{place} is not a PostgreSQL address: write postgresql://user:password@host:port/database.")]
    try:
        connection = psycopg2.connect(dsn, connect_timeout=_CONNECT_LIMIT_S)
    except psycopg2.OperationalError as error:
        reason = _reason(error, password)
        return [Finding("refuse", f"PostgreSQL at {place} does not let us in ({reason}): start it, or correct the URL.")]
    try:
        return [*_judge_postgres(_ask_postgres(connection), place), *_judge_clock(_ask_clock(connection, now))]
    finally:
        connection.close()


def _reason(error: psycopg2.OperationalError, password: str | None) -> str:
    lines = str(error).splitlines() or ["no reason given"]
    reason = lines[0].rpartition("failed: ")[2]
    return reason.replace(password, "***") if password else reason


def _ask_postgres(connection: psycopg2.extensions.connection) -> dict[str, str]:
    names = ("server_version_num", "server_version", "server_encoding", "synchronous_commit", "fsync", "transaction_read_only")
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, setting FROM pg_settings WHERE name = ANY(%s)", (list(names),))
        return dict(cursor.fetchall())


def _judge_postgres(facts: Answers, place: str) -> Iterator[Finding]:
    if int(facts["server_version_num"]) < POSTGRES_AT_LEAST * 10_000:
        yield Finding("refuse", f"PostgreSQL at {place} is {facts['server_version']}: upgrade it to {POSTGRES_AT_LEAST} or later.")
    if (encoding := facts["server_encoding"]) != "UTF8":
        yield Finding("refuse", f"The database at {place} is encoded in {encoding}: create one with ENCODING 'UTF8' and name that.")
    if facts["synchronous_commit"] == "off":
        yield Finding(
            "refuse", f"PostgreSQL at {place} answers before it has written (synchronous_commit off): set synchronous_commit to on."
        )
    if facts["transaction_read_only"] == "on":
        yield Finding("refuse", f"PostgreSQL at {place} is read-only, perhaps a standby: name the primary in the URL.")
    if facts["fsync"] == "off":
        yield Finding("warn", f"PostgreSQL at {place} loses accepted cases when the power fails (fsync off): set fsync to on.")


def _ask_clock(connection: psycopg2.extensions.connection, now: Callable[[], datetime]) -> float:
    with connection.cursor() as cursor:
        asked_at = now()
        cursor.execute("SELECT clock_timestamp()")
        row: tuple[datetime] | None = cursor.fetchone()
        answered_at = now()
    return clock_skew_s(row[0], asked_at=asked_at, answered_at=answered_at) if row else 0.0


def clock_skew_s(theirs: datetime, *, asked_at: datetime, answered_at: datetime) -> float:
    """Seconds that their clock is ahead of ours (behind: negative), as far as one question and answer can prove."""
    if theirs > answered_at:
        return (theirs - answered_at).total_seconds()
    return min(0.0, (theirs - asked_at).total_seconds())


def _judge_clock(skew_s: float) -> Iterator[Finding]:
    if abs(skew_s) > CLOCK_SKEW_LIMIT_S:
        side = "ahead of" if skew_s > 0 else "behind"
        yield Finding(
            "refuse",
            f"The database's clock is {abs(skew_s):.1f} s {side} this machine's, at most {CLOCK_SKEW_LIMIT_S} s is allowed:"
            " synchronise both with NTP.",
        )


def check_kombu(version: str | None = None) -> list[Finding]:
    """Check the installed messaging library, whose redelivery settings are new."""
    version = version or importlib.metadata.version("kombu")
    if _numbers(version) >= KOMBU_AT_LEAST:
        return []
    wanted = _dotted(KOMBU_AT_LEAST)
    return [Finding("refuse", f"kombu {version} brings lost messages back too late: install kombu>={wanted}.")]


def check_all(*, redis_url: str, database_url: str, now: Callable[[], datetime]) -> list[Finding]:
    """Run every check; an empty list is a clean bill. The severe come first."""
    findings = [*check_redis(redis_url), *check_postgres(database_url, now=now), *check_kombu()]
    return sorted(findings, key=lambda finding: finding.level != "refuse")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(number) for number in version)
