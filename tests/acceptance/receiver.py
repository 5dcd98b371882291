"""A webhook receiver on this machine that answers as it is told and remembers what came."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Event, Thread

SHORTLY_S = 20.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request that came."""

    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def message_id(self) -> str:
        """The same at every attempt of one message."""
        return self.headers["webhook-id"]


@dataclass
class Receiver:
    """What a receiver answers, and what it got."""

    answers: list[int] = field(default_factory=list)
    """Status codes for the next requests; 200 after those."""
    released: Event = field(default_factory=Event)
    """Until it is set no answer is given, where the receiver was told to be slow."""
    got: list[Delivery] = field(default_factory=list)
    url: str = ""
    _changed: Condition = field(default_factory=Condition)

    def take(self, delivery: Delivery) -> int:
        """Remember a request, and say with which status it is answered."""
        with self._changed:
            self.got.append(delivery)
            self._changed.notify_all()
            status = self.answers.pop(0) if self.answers else 200
        self.released.wait(SHORTLY_S)
        return status

    def wait_for(self, count: int) -> Sequence[Delivery]:
        """The requests, once there are so many."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.got) >= count, SHORTLY_S), f"{len(self.got)} of {count} came"
            return list(self.got)


@contextmanager
def running_receiver(*answers: int, is_slow: bool = False) -> Iterator[Receiver]:
    """Listen on a free port of the loopback."""
    receiver = Receiver(list(answers))
    if not is_slow:
        receiver.released.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = receiver.take(Delivery({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the library's
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_port}/hook"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
