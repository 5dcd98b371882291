"""Whatever has a moment that another process compares asks the ledger's clock; who asks the host's own has a reason."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
REASONS = {
    "pipeline/deadline.py": "is where the host's clock is named",
    "pipeline/callbacks/client.py": "a default; the delivery pool passes the ledger's clock",
    "workers/client.py": "the receiver of a callback judges its age by its own clock, as the standard says",
    "workers/cli/diagnosis/servers.py": "compares this host's clock with the ledger's",
    "pipeline/inference/profiling/__main__.py": "when a card was measured, for people; nothing is decided by it",
    "workers/cli/doctor.py": "looks whether this host's clock can be right",
    "workers/cli/list.py": "a person's wish, in hours before now",
    "workers/deployment.py": "compares this host's clock with the ledger's",
    "workers/flower_events.py": "what Flower shows; nothing is decided by it",
    "workers/gateway/cases.py": "a hint how soon to poll again",
    "workers/pool_process.py": "compares this host's clock with the ledger's",
    "workers/stage_task.py": "the timeline that people read; nothing is decided by it",
}
"""Every module that asks the host's wall clock, and why nothing expires by it."""


def asked_of_the_host(source: str) -> Iterator[tuple[int, str]]:
    """(line, what) of each use of the host's wall clock."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Name(id="time"), attr="time" | "time_ns" as name):
                yield node.lineno, name
            case ast.Attribute(attr="utcnow" | "today" as name):
                yield node.lineno, name
            case ast.Attribute(value=ast.Name(id="datetime"), attr="now"):
                yield node.lineno, "datetime.now"
            case ast.Name(id="utc_now", ctx=ast.Load()):
                yield node.lineno, "utc_now"
            case ast.ImportFrom(module="time", names=names):
                yield from ((node.lineno, each.name) for each in names if each.name in ("time", "time_ns"))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import time\nif time.time() > deadline: ...", {"time"}),
        ("from time import time as wall", {"time"}),
        ("datetime.now(UTC)", {"datetime.now"}),
        ("date.today()", {"today"}),
        ("reclaim(now=utc_now())", {"utc_now"}),
        ("f(clock=utc_now)", {"utc_now"}),
        ("time.monotonic(); services.clock.now(); from time import monotonic", set()),
    ],
)
def test_every_way_to_ask_is_seen(source: str, found: set[str]) -> None:
    assert {name for _, name in asked_of_the_host(source.replace("; ", "\n"))} == found


def test_nobody_asks_the_hosts_clock_without_a_reason() -> None:
    asking = {
        f"{path.relative_to(ROOT).as_posix()}:{line} {what}"
        for room in ("pipeline", "workers", "schemas")
        for path in (ROOT / room).rglob("*.py")
        for line, what in asked_of_the_host(path.read_text(encoding="utf-8"))
    }
    modules = {each.split(":")[0] for each in asking}

    assert {each for each in asking if each.split(":")[0] not in REASONS} == set()
    assert REASONS.keys() - modules == set()
