"""A receiver of callbacks, such as a RIS would have: keeps what came, and checks the signatures."""

import threading
import time
from collections.abc import Set
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import ClassVar, Self

from pydantic import ValidationError

from schemas.webhook import CaseEvent
from workers.client import BadSignature, verify_callback

LOOPBACK = "127.0.0.1"
BODY_LIMIT_BYTES = 64 * 1024
SIGNATURE_OK = "signature ok"


@dataclass(frozen=True, slots=True)
class Callback:
    """One request as it came."""

    headers: dict[str, str]
    body: bytes


class CallbackReceiver:
    """`with CallbackReceiver() as receiver:` listens on a free loopback port."""

    def __init__(self) -> None:
        self._came: list[Callback] = []
        self._changed = threading.Condition()
        handler = type("Handler", (_Handler,), {"receiver": self})
        self._server = ThreadingHTTPServer((LOOPBACK, 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="callbacks", daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{LOOPBACK}:{self._server.server_port}/callbacks"

    def keep(self, callback: Callback) -> None:
        """Store one request and wake who waits."""
        with self._changed:
            self._came.append(callback)
            self._changed.notify_all()

    def verified(self, secret: str, case_ids: Set[str], *, until_s: float) -> dict[str, str]:
        """Wait until every case has a callback, and say of each case why its callback is to be trusted, or not.

        Returns
        -------
        Case id to `signature ok`, or to what is wrong; a case whose callback did not come is absent.
        """
        end = time.monotonic() + until_s
        with self._changed:
            while True:
                checked = dict(_check(secret, callback) for callback in self._came)
                left_s = end - time.monotonic()
                if case_ids <= checked.keys() or left_s <= 0:
                    return checked
                self._changed.wait(left_s)

    def __enter__(self) -> Self:
        """Begin to listen."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _check(secret: str, callback: Callback) -> tuple[str, str]:
    try:
        case_id = CaseEvent.model_validate_json(callback.body, extra="ignore").data.case_id
    except ValidationError:
        return "", "not an event of a case"
    try:
        verify_callback(secret, callback.headers, callback.body)
    except BadSignature as error:
        return case_id, str(error)
    return case_id, SIGNATURE_OK


class _Handler(BaseHTTPRequestHandler):
    """Answers 204 to every POST, quickly: what it means is looked at later."""

    receiver: ClassVar[CallbackReceiver]

    def do_POST(self) -> None:
        """Keep the body."""
        length_bytes = int(self.headers.get("Content-Length") or 0)
        if length_bytes > BODY_LIMIT_BYTES:
            self.send_error(413)
            return
        body = self.rfile.read(length_bytes)
        self.send_response(204)
        self.end_headers()
        self.receiver.keep(Callback(dict(self.headers.items()), body))

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the library's name
        """Stay silent: the command has something else to show."""
