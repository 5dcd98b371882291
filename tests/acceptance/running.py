"""The real thing, started as a user starts it: `secondread up` in a folder of its own, and what may be asked of it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any, TypeVar
from uuid import uuid4

import httpx
import psutil
import psycopg2
import redis

from workers.access import Access, read_access
from workers.settings import bare_environment

START_LIMIT_S = 240.0
STOP_LIMIT_S = 40.0
LONGEST_WAIT_S = 25
"""The door waits no longer for one request."""
LOOK_EVERY_S = 0.05
MAX_BODY_BYTES = 8 * 1024 * 1024
DEADLINE_S = 240
SETTINGS = {
    "SECONDREAD_MAX_BODY_BYTES": str(MAX_BODY_BYTES),
    "SECONDREAD_GATEWAY_PORT": "0",
    "SECONDREAD_METRICS_PORT": "0",
    "SECONDREAD_WEBHOOK_ALLOW_NETWORKS": '["127.0.0.0/8"]',
    "SECONDREAD_WEBHOOK_ALLOW_HTTP": "true",
    # Tests that stop workers, or send hundreds of cases to a slow machine, are not about the guard; `test_guard.py` is.
    "SECONDREAD_DEADLINE_S": str(DEADLINE_S),
    "SECONDREAD_PRELIMINARY_AFTER_S": "120",
}

Json = dict[str, Any]
Found = TypeVar("Found")


class Door:
    """The HTTP door, asked with plain requests and one API key."""

    def __init__(self, url: str, api_key: str) -> None:
        self.http = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {api_key}"},
            timeout=LONGEST_WAIT_S + 15,
            limits=httpx.Limits(max_connections=64),
            trust_env=False,
        )

    def close(self) -> None:
        """Close the connections."""
        self.http.close()

    def submit(self, *instances: bytes, key: str | None = None, wait_s: int = 0, fields: Mapping[str, str] | None = None) -> httpx.Response:
        """Send one case; a new Idempotency-Key where none is given."""
        headers = {"Idempotency-Key": key or uuid4().hex} | ({"Prefer": f"wait={wait_s}"} if wait_s else {})
        files = [("instances", ("image.dcm", instance, "application/dicom")) for instance in instances]
        return self.http.post("/v1/cases", files=files, data=fields, headers=headers)

    def accepted(self, *instances: bytes, fields: Mapping[str, str] | None = None) -> Json:
        """Send one case and return it as it was accepted."""
        response = self.submit(*instances, fields=fields)
        assert response.status_code == 202, response.text
        return _json(response)

    def from_source(self, source: str, *paths: str) -> str:
        """Name instances in a configured source; return the case's id."""
        headers = {"Idempotency-Key": uuid4().hex}
        response = self.http.post("/v1/cases", json={"source": source, "paths": paths}, headers=headers)
        assert response.status_code == 202, response.text
        case_id: str = _json(response)["case_id"]
        return case_id

    def answered(self, *instances: bytes, fields: Mapping[str, str] | None = None) -> Json:
        """Send one case and return it with its answer."""
        response = self.submit(*instances, wait_s=LONGEST_WAIT_S, fields=fields)
        assert response.status_code == 200, response.text
        return _json(response)

    def case(self, case_id: str, *, wait_s: int = 0) -> Json:
        """Read a case, or wait for its answer."""
        return _json(self.http.get(f"/v1/cases/{case_id}", headers={"Prefer": f"wait={wait_s}"} if wait_s else {}))

    def ended(self, case_id: str, *, within_s: float) -> Json:
        """The case once it has its answer; the last that was seen of it after that time."""
        until = monotonic() + within_s
        while True:
            case = self.case(case_id, wait_s=max(1, min(LONGEST_WAIT_S, round(until - monotonic()))))
            if case["result_version"] or case["ended_at"] or monotonic() >= until:
                return case

    def timeline(self, case_id: str) -> Json:
        """Where a case's time went."""
        return _json(self.http.get(f"/v1/cases/{case_id}/timeline"))


def _json(response: httpx.Response) -> Json:
    found: Json = response.json()
    return found


@dataclass
class Deployment:
    """One running `secondread up`."""

    state_dir: Path
    tensor_dir: Path
    archive: Path
    """The folder of the configured source `archive`."""
    process: psutil.Popen
    access: Access
    door: Door

    @property
    def logs(self) -> Path:
        """One file a process."""
        return self.state_dir / "logs"

    def all_processes(self) -> list[psutil.Process]:
        """The command's own process and everything below it."""
        return [psutil.Process(self.process.pid), *self.process.children(recursive=True)]

    def workers(self, name: str) -> list[psutil.Process]:
        """The processes that now run `workers.<name>`, working or not yet."""
        found: list[psutil.Process] = [each for each in self.process.children() if f"workers.{name}" in each.cmdline()]
        return found

    def worker(self, name: str) -> psutil.Process:
        """The process that now runs `workers.<name>`, or one of them, once it works."""
        ready = self.state_dir / "ready"

        def found() -> psutil.Process | None:
            # The file of a process that died is there until its successor starts.
            running = self.workers(name)
            ready_at = max((file.stat().st_mtime for file in (*ready.glob(name), *ready.glob(f"{name}-*"))), default=0.0)
            return running[0] if running and ready_at >= running[0].create_time() - 1.0 else None

        process = eventually(lambda: _unless_gone(found), within_s=START_LIMIT_S)
        assert process is not None, f"no process runs workers.{name}"
        return process

    @contextmanager
    def paused(self, name: str) -> Iterator[None]:
        """Stop a worker for a while, as a machine that swaps does, so that work waits before it."""
        with frozen(self.worker(name)):
            yield

    def server(self, name: str) -> psutil.Process:
        """The main process of an embedded server, once it runs."""

        def found() -> psutil.Process | None:
            running = (each for each in self.process.children() if each.status() != psutil.STATUS_ZOMBIE)
            return next((each for each in running if name in each.name()), None)

        process = eventually(lambda: _unless_gone(found), within_s=START_LIMIT_S)
        assert process is not None, f"no {name} runs"
        return process

    @cached_property
    def environment(self) -> Mapping[str, str]:
        """The settings that the processes were given."""
        return self.worker("gateway").environ()

    @property
    def redis_url(self) -> str:
        """The broker, with its password."""
        return self.environment["SECONDREAD_REDIS_URL"]

    @property
    def database_url(self) -> str:
        """The ledger, as libpq takes it."""
        return self.environment["SECONDREAD_DATABASE_URL"].replace("+psycopg2", "")

    def redis(self) -> "redis.Redis":
        """A client of the broker."""
        return redis.Redis.from_url(self.redis_url)

    def rows(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Ask the ledger itself."""
        connection = psycopg2.connect(self.database_url)
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement, parameters)
                return cursor.fetchall()
        finally:
            connection.close()


def eventually(ask: Callable[[], Found], *, within_s: float) -> Found:
    """Ask until the answer is a true one, or the last one when the time is over."""
    until = monotonic() + within_s
    while not (found := ask()) and monotonic() < until:
        Event().wait(LOOK_EVERY_S)
    return found


@contextmanager
def frozen(process: psutil.Process) -> Iterator[None]:
    """A process that stands still for a while."""
    process.suspend()
    try:
        yield
    finally:
        process.resume()


def _unless_gone(ask: Callable[[], psutil.Process | None]) -> psutil.Process | None:
    try:
        return ask()
    except psutil.NoSuchProcess:
        return None


@contextmanager
def running_deployment(*, module: str = "workers.cli.main", **settings: str) -> Iterator[Deployment]:
    """Start `secondread up` (or what a test has made of it), and end it as Ctrl-C does: it must end with 0."""
    # Where we are root the embedded servers are not: they must reach the folder.
    folder = Path(tempfile.mkdtemp(prefix="secondread-acceptance-"))
    folder.chmod(0o711)
    tensors = Path(tempfile.mkdtemp(prefix="secondread-acceptance-", dir="/dev/shm"))
    state, archive = folder / "state", folder / "archive"
    archive.mkdir()
    places = {
        "SECONDREAD_STATE_DIR": str(state),
        "SECONDREAD_TENSOR_DIR": str(tensors),
        "SECONDREAD_SOURCES": json.dumps({"archive": str(archive)}),
    }
    try:
        with (folder / "up.log").open("wb") as output:
            process = psutil.Popen(
                [sys.executable, "-m", module, "up"],
                env=bare_environment() | SETTINGS | places | settings,
                cwd=Path(__file__).resolve().parents[2],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            access = _access(state, process, folder / "up.log")
            door = Door(access.url, access.api_key)
            yield Deployment(state, tensors, archive, process, access, door)
            door.close()
        finally:
            status = _end(process)
        assert status == 0, (folder / "up.log").read_text()
    finally:
        shutil.rmtree(folder)
        # Gone by now, where no tensor was left in it.
        if tensors.exists():
            shutil.rmtree(tensors)


def _access(state: Path, process: psutil.Popen, log: Path) -> Access:
    eventually(lambda: read_access(state) is not None or process.poll() is not None, within_s=START_LIMIT_S)
    access = read_access(state)
    assert access is not None, log.read_text()
    return access


def _end(process: psutil.Popen) -> int:
    """Ask it to stop; where it does not, kill it and all that it started."""
    started: Sequence[psutil.Process] = process.children(recursive=True) if process.poll() is None else []
    if process.poll() is None:
        os.kill(process.pid, signal.SIGTERM)
    try:
        return int(process.wait(STOP_LIMIT_S))
    except psutil.TimeoutExpired:
        process.kill()
        return int(process.wait())
    finally:
        for each in started:
            if each.is_running():
                each.kill()
