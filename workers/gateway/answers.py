"""Waiting for an answer without a database connection a waiter: one LISTEN connection wakes them all."""

import asyncio
import threading
from collections import defaultdict
from select import select
from uuid import UUID

import psycopg2

from pipeline.observability.log import logger
from pipeline.persistence.ledger.outcomes import ANSWER_CHANNEL

RECONNECT_S = 1.0
LISTEN_S = 5.0


class AnswerBell:
    """Wakes whoever waits for a case's answer. After a reconnect it wakes everybody: notices may have been missed."""

    def __init__(self, database_url: str) -> None:
        self._url = database_url.replace("+psycopg2", "")
        self._waiters: defaultdict[UUID, set[asyncio.Event]] = defaultdict(set)
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

    def waiter(self, case_id: UUID) -> asyncio.Event:
        """Ask to be woken. Subscribe first, then read the case: an answer in between still wakes."""
        event = asyncio.Event()
        self._waiters[case_id].add(event)
        return event

    def forget(self, case_id: UUID, event: asyncio.Event) -> None:
        """Wait no more."""
        self._waiters[case_id].discard(event)
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
        connection = psycopg2.connect(self._url, connect_timeout=3, application_name="secondread answers", keepalives_idle=5)
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(f"LISTEN {ANSWER_CHANNEL}")
            self._post(None)
            while self._is_open.is_set():
                if select([connection], [], [], LISTEN_S)[0]:
                    connection.poll()
                    for notice in connection.notifies:
                        self._post(UUID(notice.payload))
                    connection.notifies.clear()
        finally:
            connection.close()

    def _post(self, case_id: UUID | None) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake, case_id)

    def _wake(self, case_id: UUID | None) -> None:
        groups = list(self._waiters.values()) if case_id is None else [self._waiters.get(case_id, set())]
        for group in groups:
            for event in group:
                event.set()
