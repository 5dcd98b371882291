"""A real Valkey and a real PostgreSQL that can be killed and come back at the same address."""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import redis

from migrations.run import migrate
from workers.embedded.postgres import EmbeddedPostgres
from workers.embedded.process import EmbeddedServer
from workers.embedded.valkey import EmbeddedValkey


@dataclass(frozen=True, slots=True)
class Place:
    """Where the processes of one run find what they share."""

    folder: Path
    database_url: str
    redis_url: str
    sources: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    """More variables, or others than these."""

    def environment(self) -> dict[str, str]:
        """The settings of a worker process."""
        return {
            "SECONDREAD_DATABASE_URL": self.database_url,
            "SECONDREAD_REDIS_URL": self.redis_url,
            "SECONDREAD_STATE_DIR": str(self.folder),
            "SECONDREAD_TENSOR_DIR": str(self.folder / "tensors"),
            "SECONDREAD_SOURCES": json.dumps(dict(self.sources)),
            "SECONDREAD_LOG_LEVEL": "info",
            **self.settings,
        }


class Servers:
    """Both servers. Valkey keeps nothing on disk; PostgreSQL waits for it, as an accepted case must."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.valkey = EmbeddedValkey(folder / "valkey", is_durable=False)
        self.postgres = EmbeddedPostgres(folder / "postgres")

    def fresh(self, name: str) -> Place:
        """An empty, migrated ledger and an empty Valkey."""
        folder = self._folder / name
        folder.mkdir()
        url = self.postgres.create_database(name)
        migrate(url)
        self.flush()
        return Place(folder, url, self.valkey.url)

    def flush(self) -> None:
        """Empty Valkey."""
        with redis.Redis.from_url(self.valkey.url) as client:
            client.flushall()

    def kill_valkey(self, *, down_s: float = 0.0) -> float:
        """`kill -9`, then start again (after some seconds) with nothing in it; return the moment of the kill."""
        return _kill_and_restart(self.valkey, down_s=down_s)

    @contextmanager
    def frozen_valkey(self) -> Iterator[None]:
        """SIGSTOP: it takes connections, and answers nobody."""
        process = psutil.Process(self.valkey.pid)
        process.suspend()
        try:
            yield
        finally:
            process.resume()

    def kill_postgres(self) -> float:
        """`kill -9` the server with all its backends, then start again; return the moment of the kill."""
        return _kill_and_restart(self.postgres)


def _kill_and_restart(server: EmbeddedServer, *, down_s: float = 0.0) -> float:
    url, pid = server.url, server.pid
    if pid is None:
        raise RuntimeError(f"{server.name} is not running")
    main = psutil.Process(pid)
    family = [main, *main.children(recursive=True)]
    struck_at = time.time()
    for process in family:
        _kill(process)
    psutil.wait_procs(family, timeout=10)
    # It has ended: this only lets go of what was known of it.
    server.stop()
    time.sleep(down_s)
    server.start()
    if server.url != url:
        raise RuntimeError(f"{server.name} came back at another address")
    return struck_at


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return


@contextmanager
def running_servers() -> Iterator[Servers]:
    """Start both in a folder of their own, and leave nothing behind."""
    # Where we are root the servers are not: they must reach the folder.
    folder = Path(tempfile.mkdtemp(prefix="secondread-faults-", dir=os.environ.get("TMPDIR", "/var/tmp")))
    folder.chmod(0o711)
    try:
        servers = Servers(folder)
        with servers.valkey, servers.postgres:
            yield servers
    finally:
        shutil.rmtree(folder, ignore_errors=True)
