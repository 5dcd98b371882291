"""An open-loop load on the real HTTP door: when each case is sent was settled before the first, however slow the answers are."""

import http.client
import json
import queue
import random
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit
from uuid import UUID

SENDERS = 16
TIMEOUT_S = 10.0


@dataclass(slots=True)
class Sent:
    """What the clients have seen."""

    promised: list[UUID] = field(default_factory=list)
    refused: int = 0
    unknown: int = 0
    """Cut off: the case may stand or not."""
    lags_s: list[float] = field(default_factory=list)
    """How late after its moment each case was handed to a sender."""

    def lag_p99_s(self) -> float:
        """The lateness that one case in a hundred exceeds."""
        return sorted(self.lags_s)[int(0.99 * len(self.lags_s))] if self.lags_s else 0.0


class OpenLoad:
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

    def __init__(self, url: str, key: str, bodies: Sequence[tuple[bytes, str]], *, rate: float) -> None:
        self._address, self._key, self._bodies, self._rate = urlsplit(url), key, bodies, rate
        self._due: queue.SimpleQueue[tuple[bytes, str] | None] = queue.SimpleQueue()
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self.sent = Sent()

    @contextmanager
    def running(self) -> Iterator[Sent]:
        """Load while the block runs; wait for the last answers after it."""
        senders = [threading.Thread(target=self._send) for _ in range(SENDERS)]
        clockwork = threading.Thread(target=self._tick)
        for thread in (*senders, clockwork):
            thread.start()
        try:
            yield self.sent
        finally:
            self._is_over.set()
            clockwork.join()
            for _ in senders:
                self._due.put(None)
            for thread in senders:
                thread.join()

    def _tick(self) -> None:
        gaps, due_at, number = random.Random(1), time.monotonic(), 0
        while not self._is_over.wait(max(0.0, due_at - time.monotonic())):
            self.sent.lags_s.append(time.monotonic() - due_at)
            self._due.put(self._bodies[number % len(self._bodies)])
            due_at += gaps.expovariate(self._rate)
            number += 1

    def _send(self) -> None:
        connection = self._connection()
        while (form := self._due.get()) is not None:
            try:
                connection.request("POST", "/v1/cases", form[0], self._headers(form[1]))
                answer = connection.getresponse()
                reply = answer.read()
            except (OSError, http.client.HTTPException):
                connection.close()
                connection = self._connection()
                with self._lock:
                    self.sent.unknown += 1
                continue
            with self._lock:
                if answer.status == http.client.ACCEPTED:
                    self.sent.promised.append(UUID(json.loads(reply)["case_id"].removeprefix("case_")))
                else:
                    self.sent.refused += 1
        connection.close()

    def _headers(self, kind: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._key}", "Content-Type": kind, "Idempotency-Key": uuid.uuid4().hex}

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(str(self._address.hostname), self._address.port, timeout=TIMEOUT_S)
