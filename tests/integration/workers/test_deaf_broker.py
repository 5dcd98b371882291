"""A worker whose connections to Valkey go deaf, are cut, or lead nowhere for a while consumes again by itself, or ends."""

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
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
from workers.watchdog import CATATONIC, STARVED_AFTER_S, Watchdog

pytestmark = pytest.mark.services

START_LIMIT_S = 180.0
NOTICED_S = 30.0 * PATIENCE
"""Three times what is promised, for a slow machine. With the usual health check of 25 s it takes 50."""
AWAY_S = 3.0


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
    client = open_redis(redis_url)
    Watchdog(Pool.REPORTING, client, threads=2, starved_after_s=STARVED_AFTER_S * PATIENCE).start()
    app.Worker(pool="threads", concurrency=2, queues=["reporting"]).start()


@contextmanager
def consuming(redis_url: str, folder: Path) -> Iterator[tuple[BaseProcess, Path]]:
    """A worker process with its watchdog, and the file in which it counts."""
    done = folder / "done"
    done.touch()
    process = spawn(serve_counting, redis_url, done, environment=dict(os.environ), log=folder / "worker.log")
    try:
        yield process, done
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
    with consuming(through(clean_redis, proxy), tmp_path) as (_, done):
        assert done_soon(app, done, within_s=START_LIMIT_S)

        strike(proxy)

        assert done_soon(app, done, within_s=NOTICED_S)


def test_a_worker_whose_broker_took_connections_and_said_nothing_consumes_again_or_ends(
    app: Celery, clean_redis: str, proxy: FaultProxy, tmp_path: Path
) -> None:
    with consuming(through(clean_redis, proxy), tmp_path) as (process, done):
        assert done_soon(app, done, within_s=START_LIMIT_S)

        proxy.behave(Fault.SWALLOW)
        threading.Event().wait(AWAY_S)
        proxy.behave()

        # Seen once in a dozen runs: it stays alive and consumes no more. The supervisor starts another for one that ends.
        is_consuming = done_soon(app, done, within_s=NOTICED_S + 2 * STARVED_AFTER_S * PATIENCE, unless=lambda: not process.is_alive())
        assert is_consuming or process.exitcode == CATATONIC


def done_soon(app: Celery, done: Path, *, within_s: float, unless: Callable[[], bool] = lambda: False) -> bool:
    """Send a task each second until one is done: what Valkey gives to a connection that went deaf is gone, until the sweeper rings."""
    until, before = time.monotonic() + within_s, done.stat().st_size
    while time.monotonic() < until and not unless():
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
