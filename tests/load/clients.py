"""The load of `make bench`: clients that each submit one case and wait for its answer in the same request, over and over."""

import http.client
import re
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_STATUS = re.compile(rb'"status":"([a-z_]+)"')


@dataclass
class Answered:
    """What the clients have seen so far."""

    latencies: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)


def multipart(data: bytes, **fields: str) -> tuple[bytes, str]:
    """One DICOM file as a form, with more fields."""
    boundary = uuid.uuid4().hex
    head = "".join(f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields.items())
    head += f'--{boundary}\r\nContent-Disposition: form-data; name="instances"; filename="i.dcm"\r\nContent-Type: application/dicom\r\n\r\n'
    return head.encode() + data + f"\r\n--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"


class Clients:
    """Keep so many cases in flight from `loaded()` being entered until it is left."""

    def __init__(self, url: str, key: str, bodies: list[tuple[bytes, str]], *, in_flight: int) -> None:
        self._address, self._key, self._bodies, self._in_flight = urlsplit(url), key, bodies, in_flight
        self.answered = Answered()
        self._lock = threading.Lock()
        self._is_over = threading.Event()

    @contextmanager
    def loaded(self) -> Iterator[Answered]:
        """Load while the block runs; wait for the last answers after it."""
        threads = [threading.Thread(target=self._client, args=(number,)) for number in range(self._in_flight)]
        for thread in threads:
            thread.start()
        try:
            yield self.answered
        finally:
            self._is_over.set()
            for thread in threads:
                thread.join()

    def _client(self, number: int) -> None:
        connection = http.client.HTTPConnection(str(self._address.hostname), self._address.port, timeout=60)
        while not self._is_over.is_set():
            body, kind = self._bodies[number % len(self._bodies)]
            number += 1
            headers = {"Authorization": f"Bearer {self._key}", "Content-Type": kind, "Prefer": "wait=25"}
            begun = time.perf_counter()
            connection.request("POST", "/v1/cases", body, headers | {"Idempotency-Key": uuid.uuid4().hex})
            answer = connection.getresponse()
            reply = answer.read()
            # Looked for, not parsed: the generator shares the cores with what it measures.
            status = _STATUS.search(reply)
            with self._lock:
                self.answered.latencies.append(time.perf_counter() - begun)
                self.answered.outcomes[status[1].decode() if status else str(answer.status)] += 1
        connection.close()
