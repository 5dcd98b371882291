"""One connection pool, two durabilities, one statement a round trip.

Every operation of the ledger is one SQL statement in autocommit mode: effect, state change and
event are one commit, guarded by the attempt. What was promised to a client (accepted, answered)
commits with fsync; hand-offs between pools do not wait for the disk, because losing the last of
them in a power cut only means that the case is done again.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import Engine, create_engine, exc
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2
from sqlalchemy.engine import Row
from sqlalchemy.sql.elements import TextClause

from pipeline.errors import LedgerUnavailable
from pipeline.persistence.ledger.wire import BoundedConnection, ask_idle_connections

CONNECT_TIMEOUT_S = 3
STATEMENT_TIMEOUT_MS = 5_000


@dataclass(frozen=True, slots=True)
class Ledger:
    """The two engines: `durable` waits for the disk, `relaxed` does not."""

    durable: Engine
    relaxed: Engine

    def close(self) -> None:
        """Give all connections back to PostgreSQL."""
        self.durable.dispose()
        self.relaxed.dispose()


def open_ledger(url: str, *, connections: int = 5, application: str = "secondread") -> Ledger:
    """Build the engines; nothing connects until the first statement."""

    def engine(synchronous_commit: str) -> Engine:
        options = f"-c synchronous_commit={synchronous_commit} -c statement_timeout={STATEMENT_TIMEOUT_MS} -c timezone=UTC"
        made = create_engine(
            url,
            isolation_level="AUTOCOMMIT",
            pool_size=connections,
            max_overflow=0,
            pool_timeout=CONNECT_TIMEOUT_S,
            pool_use_lifo=True,
            # A role on the server side that idles inside a transaction would hold back vacuum.
            connect_args={
                "connection_factory": BoundedConnection,
                "connect_timeout": CONNECT_TIMEOUT_S,
                "application_name": application,
                "options": options,
                # A host that is gone is noticed within seven seconds by the kernel, idle or not; a silent one by `wire.py`.
                "keepalives_idle": 3,
                "keepalives_interval": 2,
                "keepalives_count": 2,
                "tcp_user_timeout": 7_000,
            },
        )
        ask_idle_connections(made)
        return made

    return Ledger(durable=engine("on"), relaxed=engine("off"))


@contextmanager
def ledger_errors() -> Iterator[None]:
    """Turn what the driver raises about the server into `LedgerUnavailable`; bugs pass as they are."""
    try:
        yield
    except (exc.OperationalError, exc.InterfaceError, exc.InternalError, exc.TimeoutError) as error:
        raise LedgerUnavailable("the ledger did not answer", kind=type(error).__name__) from error


def run(engine: Engine, statement: TextClause, **parameters: Any) -> Sequence[Row[Any]]:
    """Run one statement and return its rows. A connection prepares it once: planning costs the server more than running.

    Raises
    ------
    LedgerUnavailable
        PostgreSQL is away, refuses, or took longer than the statement timeout.
    """
    prepared = _prepared(statement)
    with ledger_errors(), engine.connect() as connection:
        known: set[str] = connection.info.setdefault("prepared", set())
        if prepared.name not in known:
            connection.exec_driver_sql(prepared.prepare)
            known.add(prepared.name)
        # As the driver takes it: the expression compiler's way costs twice as much for a statement that is text already.
        result = connection.exec_driver_sql(prepared.execute, parameters)
        return result.all() if result.returns_rows else []


@dataclass(frozen=True, slots=True)
class _Prepared:
    """One statement in the two forms that PostgreSQL takes."""

    name: str
    prepare: str
    execute: str


_PARAMETER = re.compile(r"%\((\w+)\)s")


@cache
def _prepared(statement: TextClause) -> _Prepared:
    text = str(statement.compile(dialect=PGDialect_psycopg2()))  # type: ignore[no-untyped-call]
    names = list(dict.fromkeys(_PARAMETER.findall(text)))
    numbered = _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", text)
    # Named by its content, so that two statements never share a name.
    name = f"secondread_{hashlib.sha256(text.encode()).hexdigest()[:24]}"
    given = f"({', '.join(f'%({each})s' for each in names)})" if names else ""
    return _Prepared(name, f"PREPARE {name} AS {numbered}", f"EXECUTE {name}{given}")
