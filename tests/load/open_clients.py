"""An open-loop load whose clients wait for their answers: when each case is sent was settled before the first, however slow they are."""

import http.client
import queue
import random
import re
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

SENDERS = 192
"""Requests that can wait at once; each is a thread that sleeps."""
TIMEOUT_S = 60.0
_STATUS = re.compile(rb'"status":"([a-z_]+)"')
_PRELIMINARY = b'"is_preliminary":true'


@dataclass(frozen=True, slots=True)
class Answer:
    """What one client saw; monotonic seconds."""

    due_at: float
    sent_at: float
    answered_at: float
    is_final: bool
    """It is the reading, not an answer by the clock nor a refusal."""

    @property
    def wait_s(self) -> float:
        """From the moment at which it was due to be sent."""
        return self.answered_at - self.due_at


class OpenClients:
    """Poisson arrivals at a rate, from `running()` being entered until it is left.

    Parameters
    ----------
    url, key
        The door and an API key.
    bodies
        (form, content type) of the cases, taken in turn.
    rate
        Cases a second.
    """

    def __init__(self, url: str, key: str, bodies: Sequence[tuple[bytes, str]], *, rate: float, seed: int = 1) -> None:
        self._address, self._key, self._bodies, self._rate, self._seed = urlsplit(url), key, bodies, rate, seed
        self._due: queue.SimpleQueue[tuple[float, tuple[bytes, str]] | None] = queue.SimpleQueue()
        self._is_over = threading.Event()
        self.answers: list[Answer] = []

    @contextmanager
    def running(self) -> Iterator[list[Answer]]:
        """Load while the block runs; wait for the last answers after it."""
        senders = [threading.Thread(target=self._send) for _ in range(SENDERS)]
        clockwork = threading.Thread(target=self._tick)
        for thread in (*senders, clockwork):
            thread.start()
        try:
            yield self.answers
        finally:
            self._is_over.set()
            clockwork.join()
            for _ in senders:
                self._due.put(None)
            for thread in senders:
                thread.join()

    def last(self, seconds: float) -> None:
        """Let the load run for so long."""
        self._is_over.wait(seconds)

    def _tick(self) -> None:
        gaps, due_at, number = random.Random(self._seed), time.monotonic(), 0
        while not self._is_over.wait(max(0.0, due_at - time.monotonic())):
            self._due.put((due_at, self._bodies[number % len(self._bodies)]))
            due_at += gaps.expovariate(self._rate)
            number += 1

    def _send(self) -> None:
        connection = http.client.HTTPConnection(str(self._address.hostname), self._address.port, timeout=TIMEOUT_S)
        while (case := self._due.get()) is not None:
            due_at, (body, kind) = case
            sent_at = time.monotonic()
            headers = {"Authorization": f"Bearer {self._key}", "Content-Type": kind, "Prefer": "wait=25"}
            try:
                connection.request("POST", "/v1/cases", body, headers | {"Idempotency-Key": uuid.uuid4().hex})
                reply = connection.getresponse().read()
            except (OSError, http.client.HTTPException):
                connection.close()
                reply = b""
            status = _STATUS.search(reply)
            is_final = status is not None and status[1] == b"completed" and _PRELIMINARY not in reply
            self.answers.append(Answer(due_at, sent_at, time.monotonic(), is_final))
        connection.close()
