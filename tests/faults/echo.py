"""A publisher that says everything several times, out of order."""

import random
import threading
import time
from typing import Any

from celery import Celery

FLUSH_EVERY_S = 0.2
HELD_BACK = 30
"""So many messages are mixed with each other."""


class Echo:
    """Stands for the Celery application where doorbells are rung: each message goes out `copies` times, shuffled."""

    def __init__(self, app: Celery, *, copies: int) -> None:
        self._app, self._copies = app, copies
        self._held: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._flush, name="echo", daemon=True).start()

    def send_task(self, *arguments: Any, **options: Any) -> None:
        """Take a message; send older ones once there are many."""
        with self._lock:
            self._held += [(arguments, options)] * self._copies
            random.shuffle(self._held)
            self._send(max(0, len(self._held) - HELD_BACK))

    def close(self) -> None:
        """Wait until all has gone out."""
        time.sleep(5 * FLUSH_EVERY_S)

    def _flush(self) -> None:
        while True:
            time.sleep(FLUSH_EVERY_S)
            with self._lock:
                self._send(len(self._held))

    def _send(self, count: int) -> None:
        for _ in range(count):
            arguments, options = self._held.pop()
            self._app.send_task(*arguments, **options)
