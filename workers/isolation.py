"""What keeps one bad case, or one run that hangs, from stopping the others."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pipeline.cases.states import CaseState
from pipeline.observability.log import logger
from pipeline.persistence.ledger.claims import Claimed, Return, give_back
from pipeline.persistence.waiting_line import Waiting, WaitingLine
from workers.wiring import Services

SLICES = 10
"""Looks at a run within its limit."""


def apart(cases: Sequence[Claimed]) -> tuple[Sequence[Claimed], Sequence[Claimed]]:
    """Split a claimed batch into those that run now and those that go back to the line: a suspect runs by itself.

    A suspect's last worker died, or was ended because it stood still. Whoever is in that worker's hands the next time is
    struck with it, so nobody is, and a second strike proves something. The first in line decides: where it is a suspect it
    runs, else those without a strike do.
    """
    if cases and cases[0].strikes:
        return cases[:1], cases[1:]
    return [case for case in cases if not case.strikes], [case for case in cases if case.strikes]


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
