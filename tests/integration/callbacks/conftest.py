"""Receivers on the loopback that answer as receivers in the world do."""

import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseServer
from threading import Event, Thread

import pytest

CERTIFICATE = Path(__file__).with_name("receiver.example.pem")
"""Self-signed for receiver.example, with its key; trusted by nobody but these tests."""

Reply = Callable[["Receiver", BaseHTTPRequestHandler], None]


@dataclass(frozen=True, slots=True)
class Request:
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """One server, and what it saw."""

    port: int = 0
    seen: list[Request] = field(default_factory=list)
    names: list[str | None] = field(default_factory=list)
    """Server names that TLS clients asked for."""
    released: Event = field(default_factory=Event)
    """Ends whatever a reply waits for; set when the test is over."""
    hung_up: Event = field(default_factory=Event)
    """The sender has closed the connection while a reply was still being written."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"


class _Server(ThreadingHTTPServer):
    daemon_threads = False

    def handle_error(self, request: object, client_address: object) -> None:
        """A sender that hangs up is what these tests are about: no traceback."""


StartReceiver = Callable[..., Receiver]


@pytest.fixture
def start_receiver() -> Iterator[StartReceiver]:
    """Starts a server; `reply` answers each request, `tls` encrypts."""
    with ExitStack() as running:

        def start(reply: Reply, *, tls: bool = False) -> Receiver:
            receiver = Receiver()
            server = _Server(("127.0.0.1", 0), _handler(receiver, reply))
            receiver.port = server.server_port
            if tls:
                server.socket = _tls_context(receiver).wrap_socket(server.socket, server_side=True)
            thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            running.callback(_stop, receiver, server, thread)
            return receiver

        yield start


def _handler(receiver: Receiver, reply: Reply) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.seen.append(Request(self.path, {key.lower(): value for key, value in self.headers.items()}, body))
            self.close_connection = True
            try:
                reply(receiver, self)
            except OSError:
                receiver.hung_up.set()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name is the library's
            pass

    return Handler


def _tls_context(receiver: Receiver) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    context.sni_callback = lambda _socket, name, _context: receiver.names.append(name)
    return context


def _stop(receiver: Receiver, server: BaseServer, thread: Thread) -> None:
    receiver.released.set()
    server.shutdown()
    server.server_close()
    thread.join()


def status(code: int, **headers: str) -> Reply:
    """Answers with a status and no body."""

    def reply(receiver: Receiver, handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return reply


def raw(start: bytes, *, then_for_ever: bytes = b"", every_s: float = 0.0) -> Reply:
    """Writes bytes as they are, then others until the sender hangs up or the test is over."""

    def reply(receiver: Receiver, handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(start)
        while then_for_ever and not receiver.released.wait(every_s):
            handler.wfile.write(then_for_ever)

    return reply


@pytest.fixture
def answer_status() -> Callable[..., Reply]:
    return status


@pytest.fixture
def answer_raw() -> Callable[..., Reply]:
    return raw


@pytest.fixture
def trusting() -> ssl.SSLContext:
    """Trusts the test certificate alone."""
    return ssl.create_default_context(cafile=CERTIFICATE)
