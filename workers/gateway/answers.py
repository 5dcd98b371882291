"""Waiting for an answer without a database connection a waiter: one LISTEN connection hears of all, one query brings what is asked for."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from select import select
from typing import Any
from uuid import UUID

import psycopg2
from sqlalchemy.engine import Row

from pipeline.errors import LedgerUnavailable
from pipeline.observability.log import logger
from pipeline.persistence.ledger.cases import Reader, read_answered_cases
from pipeline.persistence.ledger.engine import Ledger
from pipeline.persistence.ledger.outcomes import ANSWER_CHANNEL
from pipeline.persistence.ledger.wire import BoundedConnection

RECONNECT_S = 1.0
LISTEN_S = 5.0


class Waiter:
    """One request that waits for one case."""

    def __init__(self, reader: Reader | None) -> None:
        self.reader = reader
        """Who will read the answer; None: whoever waits only wants to hear of it."""
        self._rung = asyncio.Event()
        self.row: Row[Any] | None = None
        """The case with its newest result, once the bell has brought it."""

    def ring(self, row: Row[Any] | None) -> None:
        """Wake the request; with the case, where it is known."""
        self.row = row or self.row
        self._rung.set()

    async def wait(self, timeout_s: float) -> bool:
        """Wait for the next ring; say whether it came in time. No time is no wait."""
        if timeout_s <= 0:
            return False
        try:
            await asyncio.wait_for(self._rung.wait(), timeout_s)
        except TimeoutError:
            return False
        self._rung.clear()
        return True


class AnswerBell:
    """Brings answers to whoever waits for them. After a reconnect it wakes everybody: notices may have been missed."""

    def __init__(self, database_url: str, ledger: Ledger) -> None:
        self._url = database_url.replace("+psycopg2", "")
        self._ledger = ledger
        self._waiters: defaultdict[UUID, set[Waiter]] = defaultdict(set)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_open = threading.Event()
        self._is_open.set()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to listen."""
        self._loop = loop
        threading.Thread(target=self._listen, name="answers", daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._is_open.clear()

    @contextmanager
    def waiting(self, case_id: UUID, reader: Reader | None = None) -> Iterator[Waiter]:
        """Be woken inside the block. Subscribe first, then read (or make) the case: an answer in between still wakes."""
        waiter = Waiter(reader)
        self._waiters[case_id].add(waiter)
        try:
            yield waiter
        finally:
            self._forget(case_id, waiter)

    def _forget(self, case_id: UUID, waiter: Waiter) -> None:
        self._waiters[case_id].discard(waiter)
        if not self._waiters[case_id]:
            del self._waiters[case_id]

    def _listen(self) -> None:
        while self._is_open.is_set():
            try:
                self._listen_once()
            except psycopg2.Error as error:
                logger().warning("answers_not_heard", kind=type(error).__name__)
                threading.Event().wait(RECONNECT_S)

    def _listen_once(self) -> None:
        connection = psycopg2.connect(self._url, connection_factory=BoundedConnection, application_name="secondread answers")
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(f"LISTEN {ANSWER_CHANNEL}")
            self._post(self._wake_all)
            while self._is_open.is_set():
                if not select([connection], [], [], LISTEN_S)[0]:
                    # Nothing to hear, or nothing that reaches us any more: a question tells.
                    _ask(connection)
                connection.poll()
                self._bring({UUID(notice.payload) for notice in connection.notifies})
                connection.notifies.clear()
        finally:
            connection.close()

    def _bring(self, answered: set[UUID]) -> None:
        """Read the answered cases that somebody here waits to read, all in one query; the others are only woken."""
        waiters = [(case_id, waiter) for case_id in answered for waiter in tuple(self._waiters.get(case_id, ()))]
        asked = [(case_id, waiter.reader) for case_id, waiter in waiters if waiter.reader]
        rows: dict[UUID, Row[Any]] = {}
        try:
            if asked:
                rows = {row.id: row for row in read_answered_cases(self._ledger, asked)}
        except LedgerUnavailable as error:
            # They read for themselves, and fail or not with a code of their own.
            logger().warning("answers_not_read", code=error.code)
        if waiters:
            self._post(self._wake, [(waiter, rows.get(case_id)) for case_id, waiter in waiters])

    def _post(self, call: Callable[..., None], *arguments: object) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *arguments)

    def _wake(self, waiters: Sequence[tuple[Waiter, Row[Any] | None]]) -> None:
        for waiter, row in waiters:
            waiter.ring(row)

    def _wake_all(self) -> None:
        for group in self._waiters.values():
            for waiter in group:
                waiter.ring(None)


def _ask(connection: BoundedConnection) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
