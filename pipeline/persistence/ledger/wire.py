"""How long a connection to PostgreSQL may be silent while somebody waits for it.

Nothing else bounds that wait. The server's own limits never arrive over a connection that swallows bytes; the kernel's
(keepalive, `tcp_user_timeout`) see a live peer where a proxy or a balancer between us still acknowledges them; and libpq
itself waits without end. So psycopg2 waits here, with an end, and the pool replaces a connection that was given up.
"""

import math
import select
import time
from typing import Any

import psycopg2
import psycopg2.extensions
from psycopg2.extensions import POLL_OK, POLL_READ
from sqlalchemy import Engine, event, exc

CONNECT_LIMIT_S = 3.0
SILENCE_LIMIT_S = 6.0
"""Longer than the statement timeout, so that where the server lives its word is heard first."""
IDLE_S = 2.0
"""A connection that nobody has used for so long is asked first: longer than the pause between two of the sweeper's rounds."""
PING_LIMIT_S = 1.5
_CONNECTING = 20
"""psycopg2's `CONN_STATUS_CONNECTING`, which it does not export."""


class BoundedConnection(psycopg2.extensions.connection):
    """A connection on which no call waits longer than `silence_limit_s`; one that did is closed."""

    silence_limit_s: float = SILENCE_LIMIT_S


class DeafConnection(exc.DisconnectionError):
    """A connection that was idle does not answer; those beside it in the pool are no better."""

    invalidate_pool = True


def ask_idle_connections(engine: Engine) -> None:
    """Ask a connection that was idle for a while whether it is still there, before anybody waits for it in earnest.

    Otherwise every pool of workers would find out for itself, one after the other, each with a case in its hands.
    """
    event.listen(engine, "checkin", _note_use)
    event.listen(engine, "checkout", _ask_if_idle)


def _note_use(_connection: Any, record: Any) -> None:
    record.info["used_at"] = time.monotonic()


def _ask_if_idle(connection: BoundedConnection, record: Any, _proxy: Any) -> None:
    if time.monotonic() - record.info.get("used_at", math.inf) < IDLE_S:
        return
    connection.silence_limit_s = PING_LIMIT_S
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except psycopg2.Error as error:
        raise DeafConnection("an idle connection does not answer") from error
    finally:
        connection.silence_limit_s = SILENCE_LIMIT_S


def _wait(connection: psycopg2.extensions.connection) -> None:
    """Wait until a call is complete; psycopg2 calls this for every connection of the process, and only ours have a limit."""
    begun = time.monotonic()
    while (state := connection.poll()) != POLL_OK:
        poller = select.poll()
        poller.register(connection.fileno(), select.POLLIN if state == POLL_READ else select.POLLOUT)
        if not poller.poll(_left_ms(connection, begun)):
            raise psycopg2.OperationalError("the server was silent for too long")


def _left_ms(connection: psycopg2.extensions.connection, begun: float) -> float | None:
    if not isinstance(connection, BoundedConnection):
        return None
    limit_s = CONNECT_LIMIT_S if connection.status == _CONNECTING else connection.silence_limit_s
    return max(0.0, limit_s - (time.monotonic() - begun)) * 1000


psycopg2.extensions.set_wait_callback(_wait)
