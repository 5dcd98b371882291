"""A worker whose connections to Valkey go deaf or are cut consumes again by itself."""

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from celery import Celery
from kombu.exceptions import OperationalError
from pydantic import SecretStr

from pipeline.flow import Pool
from pipeline.persistence.waiting_line import open_redis
from tests.acceptance.running import eventually
from tests.faults.processes import spawn
from tests.faults.proxy import Fault, FaultProxy, proxy_for
from tests.faults.wires import through
from tests.patience import PATIENCE
from workers.app import make_app
from workers.inference import listen
from workers.settings import Settings
from workers.transport import KNOCK_EVERY_S

pytestmark = pytest.mark.services

START_LIMIT_S = 180.0
NOTICED_S = 30.0 * PATIENCE
"""Three times what is promised, for a slow machine. With the usual health check of 25 s it takes 50."""


@pytest.fixture
def proxy(clean_redis: str) -> Iterator[FaultProxy]:
    with proxy_for(urlsplit(clean_redis).port or 0) as proxy:
        yield proxy


def serve_counting(redis_url: str, done: Path) -> None:
    """A worker with the product's application and transport; each task that it does is one more byte in a file."""
    app = make_app(Settings(redis_url=SecretStr(redis_url)), Pool.REPORTING)

    def work() -> None:
        with done.open("ab") as sink:
            sink.write(b".")

    app.task(name="reporting.postprocess")(work)
    app.Worker(pool="threads", concurrency=2, queues=["reporting"]).start()


@contextmanager
def consuming(redis_url: str, folder: Path) -> Iterator[Path]:
    """A worker process, and the file in which it counts."""
    done = folder / "done"
    done.touch()
    process = spawn(serve_counting, redis_url, done, environment=dict(os.environ), log=folder / "worker.log")
    try:
        yield done
    finally:
        process.kill()
        process.join()


def deaf(proxy: FaultProxy) -> None:
    proxy.behave(Fault.SWALLOW)
    proxy.behave()


@pytest.mark.parametrize("strike", [deaf, FaultProxy.cut_all])
def test_tasks_that_are_sent_afterwards_are_done(
    app: Celery, clean_redis: str, proxy: FaultProxy, strike: Callable[[FaultProxy], Any], tmp_path: Path
) -> None:
    with consuming(through(clean_redis, proxy), tmp_path) as done:
        assert done_soon(app, done, within_s=START_LIMIT_S)

        strike(proxy)

        assert done_soon(app, done, within_s=NOTICED_S)


def done_soon(app: Celery, done: Path, *, within_s: float) -> bool:
    """Send a task each second until one is done: what Valkey gives to a connection that went deaf is gone, until the sweeper rings."""
    until, before = time.monotonic() + within_s, done.stat().st_size
    while time.monotonic() < until:
        app.send_task("reporting.postprocess", queue="reporting")
        if eventually(lambda: done.stat().st_size > before, within_s=1.0):
            return True
    return False


def test_a_broker_that_is_away_is_looked_for_at_an_even_pace(unreachable: Celery) -> None:
    pauses: list[float] = []

    with pytest.raises(OperationalError):
        unreachable.connection_for_read().ensure_connection(lambda _error, pause_s: pauses.append(pause_s), max_retries=3)

    assert pauses == [KNOCK_EVERY_S] * 3


class Former:
    """What the listener needs of one: whose lines it hears, and somebody to wake."""

    def __init__(self, channel: str) -> None:
        self.is_draining = False
        self.lines = [self]
        self.line, self.channel = self, channel
        self.heard: queue.SimpleQueue[int] = queue.SimpleQueue()

    def wake(self, _model: object = None, joined: int = 0) -> None:
        if joined:
            self.heard.put(joined)


def heard_soon(former: Former, client: "redis.Redis") -> bool:
    until = time.monotonic() + NOTICED_S
    while time.monotonic() < until:
        client.publish(former.channel, 3)
        try:
            return former.heard.get(timeout=0.5) == 3
        except queue.Empty:
            continue
    return False


@pytest.mark.parametrize("strike", [deaf, FaultProxy.cut_all])
def test_a_former_hears_of_its_line_again(
    client: "redis.Redis", clean_redis: str, proxy: FaultProxy, strike: Callable[[FaultProxy], Any]
) -> None:
    former = Former("secondread:line:{m}:joined")
    with open_redis(through(clean_redis, proxy)) as subscriber:
        thread = threading.Thread(target=listen, args=(former, subscriber), daemon=True)
        thread.start()
        assert heard_soon(former, client)

        strike(proxy)

        while not former.heard.empty():
            former.heard.get()
        assert heard_soon(former, client)
        former.is_draining = True
        thread.join(NOTICED_S)
