"""One layer retries, the sweeper: Celery's own ways to do a thing again or later are nowhere used."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ARGUMENTS = {"autoretry_for", "retry_kwargs", "retry_backoff", "retry_backoff_max", "retry_jitter", "countdown", "eta"}
"""Of a task's declaration, and of `apply_async` and `send_task`."""


def asked_of_celery(source: str) -> Iterator[tuple[int, str]]:
    """(line, what) of each use of a retry or a delay of Celery's."""
    for node in ast.walk(ast.parse(source)):
        match node:
            # None is "at once": so the events say it that Flower reads.
            case ast.keyword(arg=str(name), value=value) if name in ARGUMENTS and not _is_none(value):
                yield node.lineno, name
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and key.value in ARGUMENTS and not _is_none(value):
                        yield key.lineno, key.value
            case ast.Attribute(attr="retry" | "autoretry_for" as name):
                yield node.lineno, name
            case ast.ImportFrom(module="celery.exceptions", names=names):
                yield from ((node.lineno, each.name) for each in names if each.name == "Retry")


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("@app.task(autoretry_for=(OSError,), retry_backoff=True)\ndef f(): ...", {"autoretry_for", "retry_backoff"}),
        ("task.apply_async(args, countdown=5)", {"countdown"}),
        ("app.send_task('x', eta=soon)", {"eta"}),
        ("app.send_task('x', **{'eta': soon})", {"eta"}),
        ("raise self.retry(exc=error)", {"retry"}),
        ("from celery.exceptions import Retry", {"Retry"}),
        ("class T(Task):\n    pass\nT.autoretry_for = (OSError,)", {"autoretry_for"}),
        ("task.apply_async(args, queue='intake')", set()),
        ("dispatcher.send('task-received', **{'eta': None})", set()),
        ("app.conf.update(worker_eta_task_limit=100, task_publish_retry=False)", set()),
        ("from redis.retry import Retry\nRetry(NoBackoff(), 0)", set()),
    ],
)
def test_the_search_finds_what_it_looks_for_and_nothing_else(source: str, found: set[str]) -> None:
    assert {name for _, name in asked_of_celery(source)} == found


def test_celerys_own_retries_and_delays_are_unused() -> None:
    modules = [path for room in ("pipeline", "workers") for path in (ROOT / room).rglob("*.py")]
    assert len(modules) > 100

    used = {
        f"{path.relative_to(ROOT)}:{line} {name}" for path in modules for line, name in asked_of_celery(path.read_text(encoding="utf-8"))
    }

    assert used == set()
