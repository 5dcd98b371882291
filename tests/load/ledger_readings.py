"""What the kernel, PostgreSQL and Valkey have counted so far: read at both ends of a window, the difference is its cost."""

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import psutil
import redis

from tests.faults.observe import Watcher
from tests.faults.processes import POOLS

TABLES = ("cases", "case_events", "results")
PROGRAM = "secondread "
"""What every process of ours puts before its name where it connects."""

_COUNTERS = """
SELECT d.xact_commit::bigint, w.wal_bytes::bigint, w.wal_fpi::bigint,
       (SELECT sum(fsyncs)::bigint FROM pg_stat_io WHERE object = 'wal'), t.n_tup_upd::bigint, t.n_tup_hot_upd::bigint
FROM pg_stat_database d, pg_stat_wal w, pg_stat_user_tables t WHERE d.datname = current_database() AND t.relname = 'cases'
"""
_BACKENDS = "SELECT pid, application_name FROM pg_stat_activity WHERE application_name <> ''"
_TABLES = """
SELECT relname, n_dead_tup::bigint, pg_relation_size(relid)::bigint, pg_indexes_size(relid)::bigint, autovacuum_count::bigint
FROM pg_stat_user_tables WHERE relname = ANY(%s)
"""


@dataclass(frozen=True, slots=True)
class Counters:
    """What has been used since the servers started."""

    at: float
    """Monotonic seconds."""
    completed: int
    """Cases with a result."""
    machine_busy_s: float
    """CPU seconds of everything that runs on this machine."""
    cpu_s: Mapping[str, float]
    """By process; every PostgreSQL process is `postgres`."""
    loop_cpu_s: Mapping[str, float]
    """Of each pool: its main thread, which is Celery's loop: it takes messages, hands them to threads and acknowledges them."""
    backend_cpu_s: Mapping[str, float]
    """Of `postgres`: what the connections of each of our processes have used."""
    commits: int
    wal_bytes: int
    wal_page_images: int
    """Pages that went whole into the log, as each does once after a checkpoint."""
    wal_fsyncs: int
    updates: int
    """Of the table of cases."""
    hot_updates: int
    """Those that touched no index."""
    redis_commands: int


@dataclass(frozen=True, slots=True)
class TableState:
    """One table at one moment."""

    dead_rows: int
    bytes: int
    index_bytes: int
    vacuums: int


@dataclass(frozen=True, slots=True)
class Sample:
    """How far the run is, and what the tables look like."""

    at: float
    """Monotonic seconds."""
    completed: int
    tables: Mapping[str, TableState]


class Meters:
    """Reads the counters of one run's processes and servers."""

    def __init__(self, watcher: Watcher, client: "redis.Redis", *, pids: Mapping[str, int], postgres_pid: int) -> None:
        self._watcher, self._redis = watcher, client
        self._pids = dict(pids)
        self._postgres = psutil.Process(postgres_pid)

    def counters(self) -> Counters:
        """Read everything."""
        commits, wal_bytes, page_images, fsyncs, updates, hot_updates = self._watcher.rows(_COUNTERS)[0]
        cpu_s = {name: _cpu_s(pid) for name, pid in self._pids.items()}
        return Counters(
            at=time.monotonic(),
            completed=self._watcher.completed(),
            machine_busy_s=_machine_busy_s(),
            cpu_s=cpu_s | {"postgres": self._postgres_cpu_s()},
            loop_cpu_s={pool.value: _main_thread_cpu_s(self._pids[pool.value]) for pool in POOLS},
            backend_cpu_s=self._backend_cpu_s(),
            commits=commits,
            wal_bytes=wal_bytes,
            wal_page_images=page_images,
            wal_fsyncs=fsyncs,
            updates=updates,
            hot_updates=hot_updates,
            redis_commands=int(self._redis.info("stats")["total_commands_processed"]),
        )

    def sample(self) -> Sample:
        """Look at the tables."""
        rows = self._watcher.rows(_TABLES, list(TABLES))
        return Sample(time.monotonic(), self._watcher.completed(), {row[0]: TableState(*row[1:]) for row in rows})

    def _postgres_cpu_s(self) -> float:
        # What has ended (a vacuum, a connection) is in its parent's account.
        times = self._postgres.cpu_times()
        ended_s = times.children_user + times.children_system
        return ended_s + _cpu_s(self._postgres.pid) + sum(_cpu_s(child.pid) for child in self._postgres.children())

    def _backend_cpu_s(self) -> dict[str, float]:
        used: defaultdict[str, float] = defaultdict(float)
        for pid, name in self._watcher.rows(_BACKENDS):
            if name.startswith(PROGRAM):
                used[name.removeprefix(PROGRAM).removeprefix("leader ")] += _cpu_s(pid)
        return dict(used)


def _cpu_s(pid: int) -> float:
    """Seconds of all threads, in user and system mode; none where it has ended meanwhile."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return times.user + times.system


def _main_thread_cpu_s(pid: int) -> float:
    return sum(thread.user_time + thread.system_time for thread in psutil.Process(pid).threads() if thread.id == pid)


def _machine_busy_s() -> float:
    times = psutil.cpu_times()
    # A guest's time is in `user` already.
    return float(times.user + times.nice + times.system + times.irq + times.softirq)
