"""Where a server of ours listens: a free loopback port and a random password, kept from one start to the next."""

import contextlib
import http.client
import json
import secrets
import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from workers.embedded.privileges import write_private

LOOPBACK = "127.0.0.1"

_FIRST_PORT = 20_000
_PORT_COUNT = 12_000
"""Kernels lend outgoing connections their ports above this range: one of those could sit on ours at the next start."""

_PASSWORD_BYTES = 24
_QUESTION_LIMIT_S = 0.5


@dataclass(frozen=True, slots=True)
class Address:
    """A loopback port and the password that opens it."""

    port: int
    password: str = field(repr=False)


def is_free(port: int) -> bool:
    """Whether nobody listens on this loopback port now. Another may take it a moment later."""
    with socket.socket() as probe:
        # As the servers do: what lingers of closed connections does not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """Give a loopback port that is free now. Whoever binds it must be ready to lose the race and ask again."""
    while True:
        port = _FIRST_PORT + secrets.randbelow(_PORT_COUNT)
        if is_free(port):
            return port


def keep_address(path: Path) -> Address:
    """Read the address kept in `path`, or make and keep one. A port that somebody took is replaced by a free one."""
    kept = Address(**json.loads(path.read_text())) if path.exists() else None
    address = kept or Address(free_port(), secrets.token_urlsafe(_PASSWORD_BYTES))
    if not is_free(address.port):
        address = replace(address, port=free_port())
    if address != kept:
        write_private(path, json.dumps(asdict(address)))
    return address


def listening(port: int) -> Callable[[], bool]:
    """Make the question whether something on this loopback port accepts connections."""

    def ask() -> bool:
        with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=_QUESTION_LIMIT_S):
            return True
        return False

    return ask


def serving(port: int, path: str) -> Callable[[], bool]:
    """Make the question whether a GET of `path` on this loopback port is answered with 200."""

    def ask() -> bool:
        connection = http.client.HTTPConnection(LOOPBACK, port, timeout=_QUESTION_LIMIT_S)
        try:
            connection.request("GET", path)
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    return ask
