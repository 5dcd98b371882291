"""The load of `make ledger`: one process that keeps cases in flight through the door's own admission, and hears of each answer.

It stands for the HTTP door: what comes while a commit is under way shares the next, and one connection listens for all answers.
"""

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, islice, repeat
from pathlib import Path
from select import select
from typing import TextIO
from uuid import UUID

import psycopg2
from celery import Celery

from pipeline.persistence.ledger.engine import Ledger, open_ledger
from pipeline.persistence.ledger.outcomes import ANSWER_CHANNEL
from schemas.message import MOST_CASES
from tests.faults.history import Submit, lines
from tests.faults.load import PAUSE_S, Load, new_case, submit_cases
from workers.app import make_app
from workers.pool_process import say_ready
from workers.settings import Settings
from workers.wiring import secret_of

CASES = Load(cases=0)
"""How a case looks, unless the flight says otherwise; how many come is the flight's."""
SILENCE_S = 30.0
"""Without any answer for so long nobody will bring one; the checker says which cases are lost."""

Hear = Callable[[float], list[UUID]]
"""Waits so many seconds at most; returns the cases that were answered meanwhile."""


@dataclass(frozen=True, slots=True)
class Flight:
    """What is kept in flight."""

    name: str
    cases: int
    most_open: int
    gap_s: float = 0.0
    """Mean time between two arrivals, at moments that are drawn beforehand; 0: the next comes as soon as there is room."""
    seed: int = 1
    looks: Load = CASES
    """How a case looks: its deadline, its reference, the share of urgent ones."""


@dataclass(frozen=True, slots=True)
class Wait:
    """One answered case as its client saw it; Unix seconds."""

    due_at: float
    """When it was to be sent: from here its client waits."""
    sent_at: float
    accepted_at: float
    """When the door said that it is committed, and its doorbell was rung."""
    answered_at: float


def waits_of(folder: Path, name: str) -> list[Wait]:
    """What the clients of a flight have seen so far, in the order of the answers."""
    text = (folder / f"waits-{name}.jsonl").read_text(encoding="ascii")
    # The last line may be half written.
    return [Wait(*json.loads(line)) for line in text.splitlines() if line.endswith("]")]


def keep_in_flight(flight: Flight, history: Path, stop: Path) -> None:
    """Submit until so many were promised, or until the stop file is there; then wait for the last answers."""
    settings = Settings()
    url = secret_of(settings, "database_url")
    ledger, app = open_ledger(url, connections=2, application="secondread door"), make_app(settings)
    say_ready(settings)
    with (
        _answers_heard(url) as hear,
        history.open("a", encoding="ascii", buffering=1) as submits,
        history.with_name(f"waits-{flight.name}.jsonl").open("a", encoding="ascii", buffering=1) as waits,
    ):
        _Clients(flight, _Door(ledger, app, flight.looks, submits), hear, waits).run(stop)


def _moments(flight: Flight) -> Iterator[float]:
    """When each case is due; 0 where it is at once."""
    if not flight.gap_s:
        return repeat(0.0, flight.cases)
    random_gaps = random.Random(flight.seed)
    gaps = (random_gaps.expovariate(1 / flight.gap_s) for _ in range(flight.cases))
    return islice(accumulate(gaps, initial=time.time()), flight.cases)


@contextmanager
def _answers_heard(url: str) -> Iterator[Hear]:
    """Listen for answers as the gateway does."""
    connection = psycopg2.connect(url.replace("+psycopg2", ""), application_name="secondread answers")
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute(f"LISTEN {ANSWER_CHANNEL}")

    def hear(timeout_s: float) -> list[UUID]:
        if select([connection], [], [], timeout_s)[0]:
            connection.poll()
        answered = [UUID(notice.payload) for notice in connection.notifies]
        connection.notifies.clear()
        return answered

    try:
        yield hear
    finally:
        connection.close()


@dataclass(frozen=True, slots=True)
class _Sent:
    """A case on its way."""

    due_at: float
    sent_at: float
    accepted_at: float


class _Door:
    """Admits cases together, and notes what their clients were told."""

    def __init__(self, ledger: Ledger, app: Celery, looks: Load, submits: TextIO) -> None:
        self._ledger, self._app, self._looks, self._submits = ledger, app, looks, submits
        self._lanes = random.Random(1)

    def take(self, dues: list[float]) -> dict[UUID, _Sent]:
        """Admit one case for each; return those that were promised."""
        cases = [new_case(self._looks, self._lanes) for _ in dues]
        began_at = time.time()
        outcome = submit_cases(self._ledger, self._app, cases)
        ended_at = time.time()
        self._submits.write(lines(Submit(case.id, case.input.instances[0].key, began_at, ended_at, outcome) for case in cases))
        if outcome != "ok":
            time.sleep(PAUSE_S)
            return {}
        return {case.id: _Sent(due_at or began_at, began_at, ended_at) for case, due_at in zip(cases, dues, strict=True)}


class _Clients:
    """The clients of one flight: who is due, and who waits for an answer."""

    def __init__(self, flight: Flight, door: _Door, hear: Hear, waits: TextIO) -> None:
        self._most_open, self._door, self._hear, self._waits = flight.most_open, door, hear, waits
        self._moments = _moments(flight)
        self._next_at = next(self._moments, None)
        self._open: dict[UUID, _Sent] = {}

    def run(self, stop: Path) -> None:
        """Send what is due and take answers, until both are over."""
        while self._open or self._next_at is not None:
            if stop.exists():
                self._next_at = None
            if dues := self._due():
                self._open |= self._door.take(dues)
            pause_s = self._pause_s()
            answered = self._hear(pause_s)
            if pause_s >= SILENCE_S and not answered:
                return
            self._note(answered)

    def _due(self) -> list[float]:
        """Take the moments that have come, as far as one commit and the room go."""
        dues: list[float] = []
        room = min(MOST_CASES, self._most_open - len(self._open))
        while len(dues) < room and self._next_at is not None and self._next_at <= time.time():
            dues.append(self._next_at)
            self._next_at = next(self._moments, None)
        return dues

    def _pause_s(self) -> float:
        """How long there is nothing to do but to listen."""
        if self._next_at is None or len(self._open) >= self._most_open:
            return SILENCE_S
        return max(0.0, self._next_at - time.time())

    def _note(self, answered: list[UUID]) -> None:
        now = time.time()
        ended = [self._open.pop(case_id) for case_id in answered if case_id in self._open]
        self._waits.write("".join(json.dumps((each.due_at, each.sent_at, each.accepted_at, now)) + "\n" for each in ended))
