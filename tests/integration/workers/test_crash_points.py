"""Workers that are killed at the worst moments, by themselves and with -9: each case still gets one result, and only one."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import redis
from celery import Celery
from pydantic import SecretStr

from migrations.run import migrate
from pipeline.flow import Pool
from pipeline.persistence.ledger import sweep
from pipeline.persistence.ledger.engine import open_ledger
from tests.acceptance.running import eventually
from tests.integration.workers.stub_cases import StubCases
from tests.integration.workers.stub_work import CLAIM_AND_RUN, COMMIT_AND_ACK, COMMIT_AND_PUBLISH, EFFECT_AND_COMMIT
from workers.app import make_app, unacked_hash, unacked_index
from workers.doorbell import ring
from workers.embedded.postgres import EmbeddedPostgres
from workers.settings import Settings, bare_environment

pytestmark = pytest.mark.services

REPEATS = 3
CASES_A_KILL = 3
ROOT = Path(__file__).resolve().parents[3]
START_LIMIT_S, RECOVERY_LIMIT_S = 60.0, 30.0

POINTS = {
    COMMIT_AND_PUBLISH: (Pool.INTAKE, "awaiting_report"),
    CLAIM_AND_RUN: (Pool.REPORTING, "postprocessing"),
    EFFECT_AND_COMMIT: (Pool.REPORTING, "postprocessing"),
    COMMIT_AND_ACK: (Pool.REPORTING, "completed"),
}
"""Which pool's worker dies there, and where it leaves its cases."""


@dataclass(frozen=True, slots=True)
class Ward:
    """One ledger and one Valkey, the workers that die on them, and what is done for their cases afterwards."""

    settings: Settings
    folder: Path
    app: Celery
    client: "redis.Redis"
    cases: StubCases

    def start(self, pool: Pool, point: str, ready: Path) -> subprocess.Popen[bytes]:
        """Start a worker of a pool that dies at a point."""
        environment = self.settings.model_copy(update={"ready_file": ready}).as_environment() | bare_environment()
        command = [sys.executable, "-m", "tests.integration.workers.crashing_worker", pool.value, point]
        with (self.folder / "workers.log").open("ab") as log:
            return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)

    def kill_at(self, pool: Pool, point: str) -> list[UUID]:
        """Let a worker take some new cases and die; return them."""
        rungs = self.cases.waiting(pool, CASES_A_KILL)
        ring(self.app, pool, rungs)
        worker = self.start(pool, point, self.folder / "never")
        try:
            assert worker.wait(START_LIMIT_S) == -signal.SIGKILL, (self.folder / "workers.log").read_text()
        finally:
            worker.kill()
            worker.wait()
        return [rung.case_id for rung in rungs]

    def let_time_pass(self) -> None:
        """As if leases and visibility had run out and all doorbells were old."""
        self.cases.lapse()
        self.cases.age()
        for pool in (Pool.INTAKE, Pool.REPORTING):
            taken: dict[Any, float] = dict.fromkeys(self.client.zrange(unacked_index(pool), 0, -1), 1.0)
            if taken:
                self.client.zadd(unacked_index(pool), taken)

    @contextmanager
    def healthy(self) -> Iterator[None]:
        """A reporting worker that lives, ready for work."""
        ready = self.folder / "ready"
        worker = self.start(Pool.REPORTING, "nowhere", ready)
        try:
            assert eventually(lambda: ready.exists() or worker.poll() is not None, within_s=START_LIMIT_S)
            assert worker.poll() is None, (self.folder / "workers.log").read_text()
            yield
        finally:
            worker.terminate()
            worker.wait(START_LIMIT_S)

    def sweep(self) -> None:
        """Free and ring what the sweeper would."""
        for pool in (Pool.INTAKE, Pool.REPORTING):
            ring(self.app, pool, sweep.free_expired(self.cases.ledger, pool, limit=100))
            ring(self.app, pool, sweep.ring_due(self.cases.ledger, pool, limit=100))
            up_to_no = sweep.newest_publish_no(self.cases.ledger)
            ring(self.app, pool, sweep.ring_all(self.cases.ledger, pool, up_to_no=up_to_no, limit=100))

    def is_quiet(self) -> bool:
        """All cases have ended, and the reporting pool has no message left, queued or in hand."""
        queues = [Pool.REPORTING.value + step for step in ("", "\x06\x163", "\x06\x166", "\x06\x169")]
        left = sum(self.client.llen(queue) for queue in queues) + self.client.hlen(unacked_hash(Pool.REPORTING))
        return left == 0 and set(self.cases.states().values()) == {"completed"}

    def recovers(self) -> bool:
        """Whether sweeping and the healthy worker end all."""

        def look() -> bool:
            self.sweep()
            return self.is_quiet()

        return eventually(look, within_s=RECOVERY_LIMIT_S)


@pytest.fixture(scope="module")
def database(postgres: EmbeddedPostgres) -> str:
    url = postgres.create_database("crash_tests")
    migrate(url)
    return url


@pytest.fixture
def ward(database: str, clean_redis: str, tmp_path: Path) -> Iterator[Ward]:
    settings = Settings(
        database_url=SecretStr(database), redis_url=SecretStr(clean_redis), state_dir=tmp_path, tensor_dir=tmp_path / "tensors"
    )
    ledger = open_ledger(database, connections=1)
    cases = StubCases(ledger)
    cases.empty()
    with make_app(settings) as app, redis.Redis.from_url(clean_redis) as client:
        yield Ward(settings, tmp_path, app, client, cases)
    ledger.close()


@pytest.mark.parametrize("point", POINTS)
def test_a_worker_that_is_killed_there_loses_nothing_and_nothing_happens_twice(ward: Ward, point: str) -> None:
    pool, left = POINTS[point]
    killed = [case_id for _ in range(REPEATS) for case_id in ward.kill_at(pool, point)]
    died = ward.cases.rows()
    assert {row.state for row in died.values()} == {left}
    # Each message was taken, and not one acknowledged.
    assert ward.client.hlen(unacked_hash(pool)) == REPEATS

    ward.let_time_pass()
    with ward.healthy():
        assert ward.recovers()

    assert {ward.cases.said(case_id) for case_id in killed} == {(1, 1, 1)}
    rows = ward.cases.rows()
    done_again = {rows[case_id].attempt - died[case_id].attempt for case_id in killed}
    assert done_again == ({0} if left == "completed" else {1})
