"""Looks at the ledger from outside: progress while a run goes on, all rows at its end."""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg2
import psycopg2.extras

from tests.faults.checker import CaseRow, EventRow, ResultRow, Seen

QUEUED = ("accepted", "awaiting_report", "awaiting_inference")
_PROGRESS = "SELECT COALESCE(max(id), %s), count(*) FILTER (WHERE entered_state = 'completed') FROM case_events WHERE id > %s"
_ANSWERED_SINCE = """
SELECT EXISTS (SELECT 1 FROM (SELECT state, accepted_at FROM cases ORDER BY id DESC LIMIT 2000) AS newest
               WHERE state = 'completed' AND accepted_at > to_timestamp(%s))
"""
_CASES = """
SELECT id::text, state, result_version, EXTRACT(EPOCH FROM accepted_at)::float8, EXTRACT(EPOCH FROM ended_at)::float8 FROM cases
"""
_RESULTS = "SELECT case_id::text, version, kind, CAST(body AS json)->>'model_output_digest' FROM results"
_EVENTS = "SELECT case_id::text, version, left_state, entered_state, EXTRACT(EPOCH FROM at)::float8, code FROM case_events"
_IN_QUEUE = "SELECT id::text, version FROM cases WHERE state = ANY(%s) AND ended_at IS NULL"
_NOT_RUNG = """
SELECT count(*) FROM cases JOIN unnest(%s::uuid[], %s::int[]) AS before(id, version) USING (id, version)
WHERE state <> 'awaiting_inference' AND published_at <= to_timestamp(%s)
"""


class Watcher:
    """One connection to the ledger; a new one after the server was killed."""

    def __init__(self, url: str) -> None:
        self._url = url.replace("+psycopg2", "")
        self._connection: Any = None
        self._last_event = 0
        self._completed = 0

    def completed(self) -> int:
        """How many cases have their result so far; cheap to ask often."""
        ((self._last_event, more),) = self.rows(_PROGRESS, self._last_event, self._last_event)
        self._completed += more
        return self._completed

    def open_count(self) -> int:
        """Cases that have not ended."""
        ((count,),) = self.rows("SELECT count(*) FROM cases WHERE ended_at IS NULL")
        return int(count)

    def answered_since(self, moment: float) -> bool:
        """Whether a case that was accepted after this moment has its result."""
        ((is_so,),) = self.rows(_ANSWERED_SINCE, moment)
        return bool(is_so)

    def queued(self) -> list[tuple[str, int]]:
        """Cases that wait for a doorbell to be answered, with their versions."""
        return [(case_id, version) for case_id, version in self.rows(_IN_QUEUE, list(QUEUED))]

    def not_rung_since(self, queued: list[tuple[str, int]], moment: float) -> int:
        """Those of them that neither moved nor were rung again after this moment."""
        ((count,),) = self.rows(_NOT_RUNG, [each for each, _ in queued], [version for _, version in queued], moment)
        return int(count)

    def seen(self) -> Seen:
        """All rows."""
        cases = [CaseRow(UUID(row[0]), *row[1:]) for row in self.rows(_CASES)]
        results = [ResultRow(UUID(row[0]), *row[1:]) for row in self.rows(_RESULTS)]
        events = [EventRow(UUID(row[0]), *row[1:]) for row in self.rows(_EVENTS)]
        return Seen(cases, results, events)

    def rows(self, statement: str, *parameters: object) -> list[Any]:
        """Ask; twice where the connection was lost meanwhile."""
        try:
            return self._ask(statement, parameters)
        except (psycopg2.OperationalError, psycopg2.InterfaceError):
            self._connection = None
            return self._ask(statement, parameters)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()

    def _ask(self, statement: str, parameters: tuple[object, ...]) -> list[Any]:
        if self._connection is None:
            self._connection = psycopg2.connect(self._url, connect_timeout=3)
            self._connection.autocommit = True
        with self._connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            return list(cursor.fetchall())


def events_of(logs: Iterable[Path], event: str) -> list[dict[str, Any]]:
    """The lines of these logs that tell of one kind of event."""
    lines = (line for log in logs if log.exists() for line in log.read_text(encoding="utf-8", errors="replace").splitlines())
    found = [json.loads(line) for line in lines if f'"{event}"' in line and line.startswith("{")]
    return [each for each in found if each.get("event") == event]


def republished(sweeper_log: Path) -> dict[str, int]:
    """Doorbells that the sweeper has sent again, by pool and cause."""
    counts: Counter[str] = Counter()
    for each in events_of([sweeper_log], "rung_again"):
        counts[f"{each['pool']} {each['cause']}"] += each["count"]
    return dict(counts)
