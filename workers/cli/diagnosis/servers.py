"""The servers of one's own: the same checks as at every start. Apart from the rest because their drivers are an extra."""

from collections.abc import Iterator

from pipeline.deadline import utc_now
from workers.cli.diagnosis.note import Note
from workers.embedded.checks import Finding, check_postgres, check_redis, redact


def look_at_servers(redis_url: str | None, database_url: str | None) -> Iterator[Note]:
    """Ask the servers whose URLs are given; the database's clock is compared with ours."""
    if redis_url is not None:
        yield from _notes(check_redis(redis_url), f"Redis at {redact(redis_url)} is fit.")
    if database_url is not None:
        found = check_postgres(database_url, now=utc_now)
        yield from _notes(found, f"PostgreSQL at {redact(database_url)} is fit, its clock agrees with ours.")


def _notes(findings: list[Finding], all_well: str) -> Iterator[Note]:
    yield from (Note("missing" if each.level == "refuse" else "odd", each.sentence) for each in findings)
    if not any(each.level == "refuse" for each in findings):
        yield Note("good", all_well)
