"""What the checks say, and that they never say a password."""

from datetime import datetime, timedelta

import pytest

from workers.embedded.checks import check_kombu, check_postgres, check_redis, clock_skew_s, redact
from workers.embedded.ports import free_port


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:secret@127.0.0.1:6379/0", "redis://:***@127.0.0.1:6379/0"),
        ("rediss://user:secret@cache.example/1", "rediss://user:***@cache.example/1"),
        ("postgresql+psycopg2://user:secret@db/secondread", "postgresql+psycopg2://user:***@db/secondread"),
        (
            "postgresql://db/secondread?user=me&password=secret&sslmode=require",
            "postgresql://db/secondread?user=me&password=***&sslmode=require",
        ),
        ("redis://:secret@one;redis://:secret@two", "redis://:***@one;redis://:***@two"),
        ("redis://:sec/ret@secret@host/0", "redis://:***@host/0"),
        ("redis://:secret;secret@host/0", "redis://:***@host/0"),
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert redact(url) == shown


def test_a_redis_that_is_not_there_is_refused_with_its_address_and_without_its_password() -> None:
    (finding,) = check_redis(f"redis://:secret@127.0.0.1:{free_port()}/0")
    assert finding.level == "refuse"
    assert "redis://:***@127.0.0.1" in finding.sentence
    assert "secret" not in finding.sentence


def test_a_broker_that_cannot_be_checked_is_warned_of() -> None:
    assert [finding.level for finding in check_redis("sentinel://:secret@127.0.0.1:26379")] == ["warn"]


def test_a_postgres_that_is_not_there_is_refused_with_its_reason(noon: datetime) -> None:
    (finding,) = check_postgres(f"postgresql+psycopg2://me:secret@127.0.0.1:{free_port()}/db", now=lambda: noon)
    assert finding.level == "refuse"
    assert "Connection refused" in finding.sentence
    assert "secret" not in finding.sentence


def test_what_is_no_postgres_url_is_refused_without_being_quoted_in_full(noon: datetime) -> None:
    (finding,) = check_postgres("postgresql://me:secret@db/x?no_such_option=1", now=lambda: noon)
    assert finding.level == "refuse"
    assert "secret" not in finding.sentence


@pytest.mark.parametrize(
    ("theirs_s", "answered_s", "skew_s"),
    [(0.0, 0.0, 0.0), (0.3, 0.8, 0.0), (1.5, 0.5, 1.0), (-0.7, 0.2, -0.7)],
    ids=["equal", "within the question's own time", "ahead", "behind"],
)
def test_only_the_skew_that_a_slow_answer_cannot_explain_counts(noon: datetime, theirs_s: float, answered_s: float, skew_s: float) -> None:
    answered_at = noon + timedelta(seconds=answered_s)
    assert clock_skew_s(noon + timedelta(seconds=theirs_s), asked_at=noon, answered_at=answered_at) == skew_s


@pytest.mark.parametrize(("version", "count"), [("5.6.2", 1), ("5.7.0", 0), ("5.10.1", 0), ("6.0.0b1", 0)])
def test_an_old_kombu_is_refused(version: str, count: int) -> None:
    assert [finding.level for finding in check_kombu(version)] == ["refuse"] * count


def test_the_installed_kombu_will_do() -> None:
    assert check_kombu() == []
