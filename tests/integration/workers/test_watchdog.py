"""A worker that is alive and receives nothing ends itself; one that is idle, busy or without Redis does not."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
from celery import Celery
from pydantic import SecretStr

from pipeline.flow import Pool, doorbell_of
from tests.acceptance.running import eventually
from tests.integration.workers.watched_worker import THREADS
from workers.app import PRIORITY, make_app, queue_keys
from workers.embedded.valkey import EmbeddedValkey
from workers.settings import Settings, bare_environment
from workers.watchdog import CATATONIC

pytestmark = pytest.mark.services

ROOT = Path(__file__).resolve().parents[3]
STARVED_AFTER_S = 2.0
LIMIT_S = 90.0
QUEUE = Pool.REPORTING.value


@dataclass(frozen=True, slots=True)
class Watched:
    """One worker process, its queue, and the Valkey between."""

    process: "subprocess.Popen[bytes]"
    app: Celery
    client: "redis.Redis"
    log: Path

    def send(self, *takes_s: float) -> None:
        """Queue tasks that take so long."""
        for each in takes_s:
            self.app.send_task(doorbell_of(Pool.REPORTING), kwargs={"takes_s": each}, queue=QUEUE, priority=min(PRIORITY.values()))

    def queued_count(self) -> int:
        """Messages that nobody has taken."""
        return sum(self.client.llen(key) for key in queue_keys(Pool.REPORTING))

    def make_catatonic(self) -> None:
        """Let it live on and consume no more, as with a connection that is half dead."""
        replies = self.app.control.cancel_consumer(QUEUE, reply=True, timeout=LIMIT_S, limit=1)
        assert replies, self.log.read_text()

    def lives_for(self, seconds: float) -> bool:
        """Whether it does not end within that time."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return True
        return False


@contextmanager
def watched(redis_url: str, database_url: str, folder: Path) -> Iterator[Watched]:
    ready, log = folder / "ready", folder / "worker.log"
    settings = Settings(
        redis_url=SecretStr(redis_url),
        database_url=SecretStr(database_url),
        state_dir=folder,
        tensor_dir=folder / "tensors",
        ready_file=ready,
    )
    command = [sys.executable, "-m", "tests.integration.workers.watched_worker", str(STARVED_AFTER_S)]
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, env=settings.as_environment() | bare_environment(), stdout=out, stderr=out)
    try:
        assert eventually(lambda: ready.exists() or process.poll() is not None, within_s=LIMIT_S)
        assert process.poll() is None, log.read_text()
        with make_app(settings) as app, redis.Redis.from_url(redis_url) as client:
            yield Watched(process, app, client, log)
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def worker(clean_redis: str, database_url: str, tmp_path: Path) -> Iterator[Watched]:
    with watched(clean_redis, database_url, tmp_path) as worker:
        yield worker


def test_a_worker_that_receives_nothing_from_a_full_queue_ends_with_a_status_that_says_so(worker: Watched) -> None:
    worker.make_catatonic()
    worker.send(0.0)

    assert worker.process.wait(LIMIT_S) == CATATONIC
    assert '"code": "worker-catatonic"' in worker.log.read_text()
    # What it starved beside is there for its successor.
    assert worker.queued_count() == 1


def test_a_worker_beside_an_empty_queue_lives(worker: Watched) -> None:
    worker.make_catatonic()

    assert worker.lives_for(4 * STARVED_AFTER_S)


def test_a_worker_whose_threads_are_all_busy_lives_and_goes_on(worker: Watched) -> None:
    worker.send(*[4 * STARVED_AFTER_S] * THREADS, 0.0, 0.0)
    assert eventually(lambda: worker.queued_count() == 2, within_s=LIMIT_S)

    assert worker.lives_for(3 * STARVED_AFTER_S)
    assert eventually(lambda: worker.queued_count() == 0, within_s=LIMIT_S)
    assert worker.process.poll() is None


def test_a_worker_outlives_a_frozen_redis_and_its_queue_is_served_when_it_is_back(
    server_folder: Path, database_url: str, tmp_path: Path
) -> None:
    with EmbeddedValkey(server_folder, is_durable=False) as server, watched(server.url, database_url, tmp_path) as worker:
        pid = worker.client.info("server")["process_id"]
        worker.make_catatonic()
        worker.send(0.0)
        os.kill(pid, signal.SIGSTOP)
        try:
            assert worker.lives_for(4 * STARVED_AFTER_S)
        finally:
            os.kill(pid, signal.SIGCONT)

        # Either it has lost its connection, and consumes again by a new one; or it has kept it, and starves now.
        assert eventually(lambda: worker.process.poll() == CATATONIC or worker.queued_count() == 0, within_s=LIMIT_S)
