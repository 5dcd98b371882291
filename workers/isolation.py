"""What keeps one bad case, or one run that hangs, from stopping the others."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final
from uuid import UUID

from pipeline.cases.states import CaseState
from pipeline.errors import Unavailable
from pipeline.observability.log import logger
from pipeline.persistence.ledger.claims import Claimed, Return, give_back
from pipeline.persistence.waiting_line import Waiting, WaitingLine
from workers.wiring import Services

SLICES = 10
"""Looks at a run within its limit."""
LAST_WORDS_S = 2.0
"""Longest that a process which gives up takes to return its cases; what it could not return, its leases free."""
HUNG: Final = Return(CaseState.INFERRING, CaseState.AWAITING_INFERENCE, "model-stood-still", is_strike=True)
DEVICE_LOST: Final = Return(CaseState.INFERRING, CaseState.AWAITING_INFERENCE, "device-lost", is_strike=True)
MOST_SUSPECTS_KNOWN: Final = 1000


def apart(cases: Sequence[Claimed]) -> tuple[Sequence[Claimed], Sequence[Claimed]]:
    """Split a claimed batch into those that run now and those that go back to the line: a suspect runs by itself.

    A suspect's last worker died, or was ended because it stood still. Whoever is in that worker's hands the next time is
    struck with it, so nobody is, and a second strike proves something. The first in line decides: where it is a suspect it
    runs, else those without a strike do.
    """
    if cases and cases[0].strikes:
        return cases[:1], cases[1:]
    return [case for case in cases if not case.strikes], [case for case in cases if case.strikes]


class Suspects:
    """The suspects that this process has met: they need not be claimed again to be told apart.

    Each claim counts as an attempt, and a case has so many. A suspect that was claimed and sent back at every firing until
    it came first in line would spend them all, and its company would at each suspect's turn.
    """

    def __init__(self) -> None:
        self._known: dict[UUID, None] = {}

    def meet(self, cases: Sequence[Claimed]) -> None:
        """Note who of some claimed cases is a suspect, and who is none any more."""
        for case in cases:
            self._known.pop(case.case_id, None)
            if case.strikes:
                self._known[case.case_id] = None
        while len(self._known) > MOST_SUSPECTS_KNOWN:
            del self._known[next(iter(self._known))]

    def aboard(self, waiting: Sequence[Waiting]) -> Sequence[Waiting]:
        """Whom to claim of a chosen batch: the first alone where it is a known suspect, else all but the known ones."""
        if waiting and waiting[0].case_id in self._known:
            return waiting[:1]
        return [case for case in waiting if case.case_id not in self._known]


def send_back(services: Services, line: WaitingLine, places: Sequence[Waiting], cases: Sequence[Claimed]) -> None:
    """Put claimed cases that shall not share a run's fate back to their places in the line; they are charged no try.

    Raises
    ------
    Unavailable
        The ledger or the line is away. Their leases lapse, or the sweeper puts them in line.
    """
    if not cases:
        return
    why = Return(CaseState.INFERRING, CaseState.AWAITING_INFERENCE, "suspects-company", is_free=True)
    returned = give_back(services.ledger, [(case.case_id, case.attempt) for case in cases], why, worker=services.worker)
    ids = {rung.case_id for rung in returned}
    line.join([place for place in places if place.case_id in ids])


def return_all(services: Services, cases: Sequence[Claimed], why: Return, *, die: Callable[[], None]) -> None:
    """Return what this process has claimed, so that nobody waits for its leases, and end it, however long the ledger takes to answer."""
    threading.Timer(LAST_WORDS_S, die).start()
    try:
        give_back(services.ledger, [(case.case_id, case.attempt) for case in cases], why, worker=services.worker)
    except Unavailable as error:
        logger().warning("not_put_back", code=error.code)
    finally:
        die()


def lost_with(cases: Sequence[Claimed]) -> Return:
    """How cases go back whose device was lost under them.

    Each becomes a suspect, so that the next process splits the batch. A device may be lost by itself (its memory failed), so
    those who were in company are charged no try: one of them that loses another device alone has a second one left.
    """
    return replace(DEVICE_LOST, is_free=len(cases) > 1)


@contextmanager
def given_up_after(limit_s: float, give_up: Callable[[], None]) -> Iterator[None]:
    """Call `give_up` from a thread of its own if the block takes longer: a run that hangs would keep its leases for ever."""
    is_over = threading.Event()

    def watch() -> None:
        # In slices: while the whole process was frozen (a host that swaps), the run had no time to use up.
        for _ in range(SLICES):
            if is_over.wait(limit_s / SLICES):
                return
        logger().critical("model_thread_stands_still", limit_s=limit_s)
        give_up()

    threading.Thread(target=watch, name="patience", daemon=True).start()
    try:
        yield
    finally:
        is_over.set()
