"""The lean transport sends what the stock one sends, with fewer clients and fewer messages about tasks."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker
from kombu.transport.redis import Channel

from pipeline.flow import Pool
from workers.app import make_app
from workers.settings import Settings
from workers.transport import BUNDLE_EVERY_S, LeanChannel

pytestmark = pytest.mark.services


@pytest.fixture
def app(clean_redis: str) -> Celery:
    return make_app(Settings(redis_url=clean_redis), Pool.REPORTING)


@contextmanager
def listening(app: Celery) -> Iterator[tuple[list[dict[str, Any]], Callable[[int], bool]]]:
    """Celery's own receiver in a thread: the events that came, and a way to wait for so many of tasks."""
    events: list[dict[str, Any]] = []
    changed = threading.Condition()
    is_over = threading.Event()

    def note(event: dict[str, Any]) -> None:
        with changed:
            if event["type"].startswith("task-"):
                events.append(event)
            changed.notify()

    def listen() -> None:
        with app.connection_for_read() as connection:
            receiver = app.events.Receiver(connection, handlers={"*": note})
            while not is_over.is_set():
                try:
                    receiver.capture(limit=None, timeout=0.5, wakeup=False)
                except TimeoutError:
                    continue

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    yield events, lambda count: _wait(changed, events, count)
    is_over.set()
    thread.join(5)


def _wait(changed: threading.Condition, events: list[dict[str, Any]], count: int) -> bool:
    with changed:
        return changed.wait_for(lambda: len(events) >= count, timeout=10)


def test_one_client_serves_all_commands_of_a_channel(app: Celery) -> None:
    with app.connection_for_write() as connection:
        channel = connection.default_channel
        assert isinstance(channel, LeanChannel)
        with channel.conn_or_acquire() as first, channel.conn_or_acquire() as second:
            assert first is second
            assert first.ping()


def test_the_stock_channel_still_has_the_seam_that_we_use() -> None:
    assert callable(Channel._create_client)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_every_task_event_arrives_in_a_bundle(app: Celery) -> None:
    done = threading.Semaphore(0)

    def work() -> None:
        done.release()

    app.conf.worker_send_task_events = True
    app.task(name="reporting.postprocess")(work)
    with (
        listening(app) as (events, have),
        start_worker(app, pool="threads", concurrency=2, perform_ping_check=False, queues=["reporting"]),
    ):
        for _ in range(5):
            app.send_task("reporting.postprocess", queue="reporting")
        for _ in range(5):
            assert done.acquire(timeout=10)
        assert have(15)
    kinds = [event["type"] for event in events]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {"task-received": 5, "task-started": 5, "task-succeeded": 5}
    assert BUNDLE_EVERY_S <= 1
