"""How a pool's process starts, says that it is ready, and stops cleanly."""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

from celery import Celery
from celery.signals import worker_ready, worker_shutting_down

from pipeline.deadline import utc_now
from pipeline.errors import LedgerUnavailable, SecondreadError
from pipeline.flow import Pool
from pipeline.observability.log import configure_logs, logger
from pipeline.persistence.ledger.clock import LedgerClock
from workers.app import make_app
from workers.embedded.checks import CLOCK_SKEW_LIMIT_S, clock_skew_s
from workers.flower_events import TaskEvents
from workers.group import Watch
from workers.leases import LeaseKeeper
from workers.settings import Settings
from workers.stage_task import PoolRuntime
from workers.watchdog import STARVED_AFTER_S, Watchdog
from workers.wiring import open_services

GC_AFTER_OBJECTS = 20_000
"""New objects between two collections; the default of 700 collects several times a case."""


def say_ready(settings: Settings) -> None:
    """Tell the supervisor, if there is one, that this process works."""
    # What is loaded by now stays: the collector need not walk through it again and again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_AFTER_OBJECTS, 20, 20)
    if settings.ready_file is not None:
        settings.ready_file.touch()


class ClockApart(SecondreadError):
    """This host's clock and the ledger's tell different times."""

    code = "clock-apart"
    title = "This machine's clock is not the ledger's"
    advice = "Synchronise both machines with NTP, then start again."


def require_one_time(clock: LedgerClock, *, now: Callable[[], datetime] = utc_now) -> None:
    """Refuse a host whose clock is more than half a second off; a ledger that is away is not asked.

    Deadlines and leases do not depend on it. The broker's sweep for messages of dead workers does: it compares the moment at
    which one host took a message with another host's clock.

    Raises
    ------
    ClockApart
        The difference is more than one question and its answer can explain.
    """
    asked_at = now()
    try:
        theirs = clock.now()
    except LedgerUnavailable as error:
        logger().warning("clock_not_compared", code=error.code)
        return
    skew_s = clock_skew_s(theirs, asked_at=asked_at, answered_at=now())
    if abs(skew_s) > CLOCK_SKEW_LIMIT_S:
        raise ClockApart(f"the ledger's clock is {abs(skew_s):.1f} s {'ahead of' if skew_s > 0 else 'behind'} this machine's")


@contextmanager
def pool_runtime(pool: Pool, settings: Settings, *, connections: int) -> Iterator[PoolRuntime]:
    """Build what the tasks of this process share, and close it at the end."""
    configure_logs(level=settings.log_level, style=settings.log_format, process=pool.value)
    with open_services(settings, role=pool.value, connections=connections) as services:
        require_one_time(services.clock)
        leases, watch = LeaseKeeper(services.ledger), Watch()
        try:
            yield PoolRuntime(pool, make_app(settings, pool), services, leases, watch, TaskEvents())
        finally:
            watch.close()
            leases.close()


def serve(
    runtime: PoolRuntime, *, threads: int, on_stop: Callable[[], None] | None = None, starved_after_s: float = STARVED_AFTER_S
) -> None:
    """Run the Celery worker until it is told to stop; SIGTERM finishes what was begun.

    Threads, never prefork: warm stops of a prefork pool stall, and CUDA does not survive a fork. A worker that has room
    and receives nothing from a queue that is not empty is ended after `starved_after_s`.
    """
    watchdog = Watchdog(runtime.pool, runtime.services.redis, threads=threads, starved_after_s=starved_after_s)

    def ready(sender: object, **_: object) -> None:
        runtime.events.attach(sender)
        watchdog.start()
        say_ready(runtime.services.settings)
        logger().info("pool_ready", pool=runtime.pool.value, threads=threads)

    def stopping(**_: object) -> None:
        logger().info("pool_drains", pool=runtime.pool.value)
        watchdog.stop()
        if on_stop is not None:
            on_stop()

    worker_ready.connect(ready, weak=False)
    worker_shutting_down.connect(stopping, weak=False)
    worker = _worker(runtime.app, runtime, threads)
    worker.start()
    sys.exit(worker.exitcode or 0)


def _worker(app: Celery, runtime: PoolRuntime, threads: int) -> "Celery.Worker":
    return app.Worker(
        hostname=runtime.services.worker,
        pool="threads",
        concurrency=threads,
        queues=[runtime.pool.value],
        loglevel="WARNING",
        without_mingle=True,
        without_gossip=True,
        quiet=True,
    )
