"""Ends a worker that is alive and receives nothing: the consumer's connection may be half dead without anybody noticing.

Such a worker answers pings, holds its leases and starves beside a full queue. The supervisor starts another in its place.
"""

import os
import threading

import redis
from celery.signals import task_received
from celery.worker import state

from pipeline.flow import Pool
from pipeline.observability import metrics
from pipeline.observability.log import logger
from workers.app import queue_keys

STARVED_AFTER_S = 20.0
LOOKS = 4
"""In that time. Looks are counted, not seconds: a process that was frozen has not starved."""
CATATONIC = 71
"""The exit status, which says why."""


class Starvation:
    """Tells a worker that starves from one that is idle, busy or waiting for Redis. Pure."""

    def __init__(self) -> None:
        self._received_count = 0
        self._starving_looks = 0

    def look(self, *, received_count: int, has_credit: bool, queued_count: int | None) -> bool:
        """Note what one look has seen; True where it has starved for so many looks that it never will receive again.

        Parameters
        ----------
        received_count
            Messages received in all.
        has_credit
            It could take another message.
        queued_count
            Messages that wait for anybody; None where Redis did not answer.
        """
        is_starving = has_credit and received_count == self._received_count and bool(queued_count)
        self._received_count = received_count
        self._starving_looks = self._starving_looks + 1 if is_starving else 0
        return self._starving_looks > LOOKS


class Watchdog:
    """Watches one pool's process from a thread of its own, and ends it where it starves."""

    def __init__(self, pool: Pool, client: "redis.Redis", *, threads: int, starved_after_s: float) -> None:
        self._pool, self._client, self._threads = pool, client, threads
        self._look_every_s = starved_after_s / LOOKS
        self._received_count = 0
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin to watch."""
        task_received.connect(self._note, weak=False)
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        """Watch no more: a worker that drains receives nothing."""
        self._stopped.set()

    def _note(self, **_: object) -> None:
        self._received_count += 1

    def _watch(self) -> None:
        starvation = Starvation()
        while not self._stopped.wait(self._look_every_s):
            has_credit = len(state.reserved_requests) < self._threads
            # Redis is asked only where its answer matters.
            queued_count = self._queued() if has_credit else None
            if starvation.look(received_count=self._received_count, has_credit=has_credit, queued_count=queued_count):
                metrics.CATATONIC_WORKERS.labels(self._pool.value).inc()
                logger().critical("worker_is_catatonic", code="worker-catatonic", pool=self._pool.value, queued_count=queued_count)
                os._exit(CATATONIC)

    def _queued(self) -> int | None:
        try:
            with self._client.pipeline(transaction=False) as pipe:
                for key in queue_keys(self._pool):
                    pipe.llen(key)
                return sum(int(count) for count in pipe.execute())
        except redis.RedisError:
            return None
