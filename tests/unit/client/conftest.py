"""A door that says what a test has written down, over real HTTP, and remembers what it was asked."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from workers.client import Client

CASE_ID = "case_0197c1d2e3f4a5b6c7d8e9f001122334"


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class ScriptedDoor:
    """Gives its answers one after the other; None closes the connection without one."""

    url: str = ""
    answers: list[tuple[int, dict[str, str], bytes] | None] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)

    def says(self, status: int, body: Any = b"", **headers: str) -> None:
        """Add an answer; what is not bytes is sent as JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.answers.append((status, {name.replace("_", "-"): value for name, value in headers.items()}, content))

    def hangs_up(self) -> None:
        """Close the next connection without an answer."""
        self.answers.append(None)

    def refuses(self, status: int, code: str, **headers: str) -> None:
        """Add a problem body."""
        problem = {
            "type": f"/problems/{code}",
            "title": "No",
            "status": status,
            "detail": "not now",
            "instance": "urn:uuid:0",
            "code": code,
            "advice": "Wait.",
            "retryable": status in {429, 503},
        }
        self.says(status, problem, **headers)


class _Handler(BaseHTTPRequestHandler):
    door: ClassVar[ScriptedDoor]

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.door.asked.append(Asked(self.command, self.path, dict(self.headers.items()), self.rfile.read(length)))
        answer = self.door.answers.pop(0)
        if answer is None:
            self.close_connection = True
            return
        status, headers, body = answer
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_DELETE = _answer  # noqa: N815

    def log_message(self, *arguments: object) -> None: ...


@pytest.fixture
def door() -> Iterator[ScriptedDoor]:
    """A door on a free port."""
    scripted = ScriptedDoor()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"door": scripted}))
    scripted.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield scripted
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def pauses_s() -> list[float]:
    """How long the client wanted to pause, try by try."""
    return []


@pytest.fixture
def client(door: ScriptedDoor, pauses_s: list[float]) -> Iterator[Client]:
    """A client of that door, which writes its pauses down instead of making them."""
    with Client(door.url, "srk_key", pause=pauses_s.append) as opened:
        yield opened


@pytest.fixture
def case_body() -> Callable[..., dict[str, Any]]:
    """Make a case as the door writes it."""

    def make(**changes: Any) -> dict[str, Any]:
        return {
            "case_id": CASE_ID,
            "status": "accepted",
            "lane": "routine",
            "accepted_at": "2026-01-02T12:00:00Z",
            "deadline_at": "2026-01-02T12:00:30Z",
            "changed_at": "2026-01-02T12:00:00Z",
            "version": 1,
            "result_version": 0,
            "is_preliminary": False,
            "links": {},
            **changes,
        }

    return make
