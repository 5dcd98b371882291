"""Workers that are killed at the worst moments, by themselves and with -9: each case still gets one result, and only one."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
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
from pipeline.persistence.ledger.deliveries import due_deliveries
from pipeline.persistence.ledger.engine import open_ledger
from tests.acceptance.running import eventually
from tests.integration.workers.stub_cases import StubCases
from tests.integration.workers.stub_work import CLAIM_AND_RUN, COMMIT_AND_ACK, COMMIT_AND_PUBLISH, EFFECT_AND_COMMIT, INSERT_AND_SEND
from workers.app import make_app, unacked_hash, unacked_index
from workers.doorbell import ring
from workers.embedded.postgres import EmbeddedPostgres
from workers.settings import Settings, bare_environment

pytestmark = pytest.mark.services

REPEATS = 20
CASES_A_KILL = 3
ROOT = Path(__file__).resolve().parents[3]
START_LIMIT_S, RECOVERY_LIMIT_S = 180.0, 60.0
LONG_AGO, NEVER = 1.0, 2.0**33
"""Unix times at which a message can have been fetched."""

POINTS = {
    COMMIT_AND_PUBLISH: (Pool.INTAKE, "awaiting_report"),
    CLAIM_AND_RUN: (Pool.REPORTING, "postprocessing"),
    EFFECT_AND_COMMIT: (Pool.REPORTING, "postprocessing"),
    COMMIT_AND_ACK: (Pool.REPORTING, "completed"),
    INSERT_AND_SEND: (Pool.REPORTING, "completed"),
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

    def _start(self, *arguments: str, ready: Path, **pipes: Any) -> subprocess.Popen[str]:
        environment = self.settings.model_copy(update={"ready_file": ready}).as_environment() | bare_environment()
        command = [sys.executable, "-m", "tests.integration.workers.crashing_worker", *arguments]
        with self.log.open("ab") as log:
            return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=log, text=True, **{"stdout": log} | pipes)

    @property
    def log(self) -> Path:
        """What the workers said."""
        return self.folder / "workers.log"

    @contextmanager
    def deaths_at(self, pool: Pool, point: str) -> Iterator[Callable[[], list[UUID]]]:
        """Give what lets a worker take some new cases and die at a point; it returns them."""
        nursery = self._start(ready=self.folder / "never", stdin=subprocess.PIPE, stdout=subprocess.PIPE)

        def die() -> list[UUID]:
            rungs = self.cases.waiting(pool, CASES_A_KILL)
            ring(self.app, pool, rungs)
            assert nursery.stdin
            assert nursery.stdout
            print(pool.value, point, sep="\t", file=nursery.stdin, flush=True)
            assert nursery.stdout.readline().strip() == str(-signal.SIGKILL.value), self.log.read_text()
            # No later worker is given what this one had, however long all the deaths take.
            self._date_unacked(pool, NEVER)
            return [rung.case_id for rung in rungs]

        with nursery:
            try:
                yield die
            finally:
                nursery.kill()

    def let_time_pass(self) -> None:
        """As if leases and visibility had run out and all doorbells were old."""
        self.cases.lapse()
        self.cases.age()
        for pool in (Pool.INTAKE, Pool.REPORTING):
            self._date_unacked(pool, LONG_AGO)

    def _date_unacked(self, pool: Pool, fetched_at: float) -> None:
        taken: dict[Any, float] = dict.fromkeys(self.client.zrange(unacked_index(pool), 0, -1), fetched_at)
        if taken:
            self.client.zadd(unacked_index(pool), taken)

    @contextmanager
    def healthy(self) -> Iterator[None]:
        """A reporting worker that lives, ready for work."""
        ready = self.folder / "ready"
        worker = self._start(Pool.REPORTING.value, "nowhere", ready=ready)
        try:
            assert eventually(lambda: ready.exists() or worker.poll() is not None, within_s=START_LIMIT_S)
            assert worker.poll() is None, self.log.read_text()
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
    with ward.deaths_at(pool, point) as die:
        killed = [case_id for _ in range(REPEATS) for case_id in die()]
    died = ward.cases.rows()
    assert {row.state for row in died.values()} == {left}
    # Each message was taken, and not one acknowledged.
    assert ward.client.hlen(unacked_hash(pool)) == REPEATS

    ward.let_time_pass()
    with ward.healthy():
        assert ward.recovers()

    assert {ward.cases.said(case_id) for case_id in killed} == {(1, 1, 1)}
    # Nobody has sent a callback, and the sweeper will find each.
    assert len(due_deliveries(ward.cases.ledger, limit=10 * len(killed))) == len(killed)
    rows = ward.cases.rows()
    done_again = {rows[case_id].attempt - died[case_id].attempt for case_id in killed}
    assert done_again == ({0} if left == "completed" else {1})
