"""What keeps one bad case, or one run that hangs, from stopping the others."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pipeline.observability.log import logger
from pipeline.persistence.ledger.claims import Claimed

SUSPECT_TRIES = 2
"""Claims by one pool from which on a case is suspected."""


def apart(cases: Sequence[Claimed]) -> list[Sequence[Claimed]]:
    """Split a claimed batch: first the cases without a history together, then each suspect by itself.

    A suspect was claimed here before and not finished: whoever had it died, or was ended because it stood still. In a run
    of its own it takes nobody with it again.
    """
    clean = [case for case in cases if case.tries < SUSPECT_TRIES]
    suspects: list[Sequence[Claimed]] = [[case] for case in cases if case.tries >= SUSPECT_TRIES]
    return [clean, *suspects] if clean else suspects


@contextmanager
def given_up_after(limit_s: float, on_death: Callable[[], None]) -> Iterator[None]:
    """Call `on_death` from a thread of its own if the block takes longer: a run that hangs would keep its leases for ever."""

    def give_up() -> None:
        logger().critical("model_thread_stands_still", limit_s=limit_s)
        on_death()

    timer = threading.Timer(limit_s, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
