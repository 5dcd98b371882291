"""Ringing without waiting for Redis: for the door and the guard, whose promises need PostgreSQL alone."""

import queue
import threading
from typing import Any

from celery import Celery
from kombu.exceptions import OperationalError

from pipeline.observability.log import logger

CLOSE_S = 2.0
"""Longest that the end of a process waits for its last doorbells."""

_Message = tuple[str, dict[str, Any]]


class Messenger:
    """A `Publisher` with a thread of its own: whoever rings goes on at once, whether Redis answers, hangs or is gone.

    What cannot be published is dropped, with all that waits behind it: the rows stand, and the sweeper rings again.
    """

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._waiting: queue.SimpleQueue[_Message | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._live, name="messenger", daemon=True)
        self._thread.start()

    def send_task(self, name: str, /, **options: Any) -> None:
        """Take a message; never blocks, never fails."""
        self._waiting.put((name, options))

    def close(self) -> None:
        """Send what waits, if that goes quickly, and end."""
        self._waiting.put(None)
        self._thread.join(CLOSE_S)

    def _live(self) -> None:
        while (message := self._waiting.get()) is not None:
            name, options = message
            try:
                self._app.send_task(name, **options)
            except OperationalError as error:
                count, is_over = self._drop()
                logger().warning("doorbell_not_rung", kind=type(error).__name__, count=1 + count)
                if is_over:
                    return

    def _drop(self) -> tuple[int, bool]:
        """Forget what waits; say how much it was, and whether the end was among it."""
        count = 0
        while True:
            try:
                message = self._waiting.get_nowait()
            except queue.Empty:
                return count, False
            if message is None:
                return count, True
            count += 1
