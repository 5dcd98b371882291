"""What keeps one bad case, or one run that hangs, from stopping the others."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pipeline.observability.log import logger
from pipeline.persistence.ledger.claims import Claimed

SUSPECT_TRIES = 2
"""Claims by one pool from which on a case is suspected."""
SLICES = 10
"""Looks at a run within its limit."""


def is_suspect(case: Claimed) -> bool:
    """Whether it was claimed here before and not finished: whoever had it died, or was ended because it stood still."""
    return case.tries >= SUSPECT_TRIES


def apart(cases: Sequence[Claimed]) -> list[Sequence[Claimed]]:
    """Split a claimed batch: first the cases without a history together, then each suspect by itself.

    In a run of its own a suspect takes nobody with it again.
    """
    clean = [case for case in cases if not is_suspect(case)]
    suspects: list[Sequence[Claimed]] = [[case] for case in cases if is_suspect(case)]
    return [clean, *suspects] if clean else suspects


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
