"""One leader among several instances of a role: a lock that PostgreSQL holds as long as a session lives."""

import hashlib
from typing import Self

from sqlalchemy import Connection, NullPool, create_engine

from pipeline.errors import LedgerUnavailable
from pipeline.observability import metrics
from pipeline.observability.log import logger
from pipeline.persistence.ledger.engine import Ledger, ledger_errors
from pipeline.persistence.ledger.wire import BoundedConnection

SILENCE_S = 5.0
"""Unless told otherwise, a leader that has not asked for so long has lost its session: longer than any healthy round of a second."""
CONNECT_TIMEOUT_S = 2
STATEMENT_TIMEOUT_MS = 1_000

_TRY = "SELECT pg_try_advisory_lock(%(key)s)"
_CONFIRM = "SELECT true"


class _BrieflyBounded(BoundedConnection):
    silence_limit_s = 3.0


class Leadership:
    """Whether this instance leads in its role. Ask once a round, more often than once in `silence_s`, from one thread.

    The lock belongs to the session of a connection that nothing else uses. Of a process that dies the kernel closes
    the connection, PostgreSQL ends the session, and the next instance that asks leads.

    A process that is frozen (SIGSTOP, a host that swaps) or whose host is gone keeps its connection, but asks nothing:
    after `silence_s` PostgreSQL ends the session all the same, so a frozen leader holds the others up for no longer.
    When it wakes it may finish the one round that it was in, beside the new leader. For the roles here that is harmless:
    what a round writes is guarded by what it read, and rows that another has locked are left out, so every round is safe
    beside another. The lock saves work twice done; nothing is right only because of it.
    """

    def __init__(self, ledger: Ledger | str, role: str, *, silence_s: float = SILENCE_S) -> None:
        self._role = role
        self._key = lock_key(role)
        self._connection: Connection | None = None
        self._is_leader = False
        self._engine = create_engine(
            ledger if isinstance(ledger, str) else ledger.relaxed.url,
            isolation_level="AUTOCOMMIT",
            poolclass=NullPool,
            connect_args={
                "connection_factory": _BrieflyBounded,
                "connect_timeout": CONNECT_TIMEOUT_S,
                "application_name": f"secondread leader {role}",
                "options": f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c idle_session_timeout={silence_s * 1000:.0f}",
                # A server whose host is gone is noticed within three seconds, also in the middle of a question.
                "keepalives_idle": 1,
                "keepalives_interval": 1,
                "keepalives_count": 2,
                "tcp_user_timeout": 3_000,
            },
        )

    def is_leader(self) -> bool:
        """Take the lock, or confirm that it is still ours: one round trip.

        False where another leads, and where PostgreSQL is away. An instance that has lost its connection is not the
        leader any more, even if nobody else has asked meanwhile; the next question connects and tries again.
        """
        try:
            self._become(self._ask())
        except LedgerUnavailable:
            self._disconnect()
            self._become(False)
        return self._is_leader

    def close(self) -> None:
        """Let another lead."""
        self._disconnect()
        self._is_leader = False
        self._engine.dispose()

    def __enter__(self) -> Self:
        """`with Leadership(...) as leadership:` closes it at the end."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let another lead."""
        self.close()

    def _ask(self) -> bool:
        with ledger_errors():
            if self._connection is None:
                self._connection = self._engine.connect()
            # The session that took the lock has it: taking it again would only count it twice.
            statement = _CONFIRM if self._is_leader else _TRY
            return bool(self._connection.exec_driver_sql(statement, {"key": self._key}).scalar_one())

    def _disconnect(self) -> None:
        if self._connection is not None:
            # Closed for good, whatever state it is in: nothing is said to a server that may not answer.
            self._connection.invalidate()
            self._connection.close()
            self._connection = None

    def _become(self, is_leader: bool) -> None:
        if is_leader and not self._is_leader:
            metrics.LEADER_SINCE.labels(self._role).set_to_current_time()
            logger().info("leads_now", role=self._role)
        elif self._is_leader and not is_leader:
            logger().warning("leads_no_more", role=self._role)
        self._is_leader = is_leader


def lock_key(role: str) -> int:
    """The number of a role's advisory lock: 64 bits, signed, the same on every host."""
    return int.from_bytes(hashlib.sha256(f"secondread leader {role}".encode()).digest()[:8], signed=True)
