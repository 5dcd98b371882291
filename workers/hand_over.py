"""Hands the results of one batch on while the next one runs: the device does not wait for the ledger.

What is handed on has run; nothing that is still to run waits here. At most one batch is on its way out: where the ledger is
slower than the device, the model thread waits for it.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from pipeline.errors import Unavailable
from pipeline.observability.log import logger


class HandOver:
    """One thread beside the model thread.

    Parameters
    ----------
    on_death
        Ends the process: called where handing on raises what is no error of ours.
    """

    def __init__(self, *, on_death: Callable[[], None]) -> None:
        self._on_death = on_death
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="hand-over")
        self._under_way: Future[None] | None = None

    def give(self, hand_on: Callable[[], None]) -> None:
        """Have a batch handed on, after the one before it."""
        self.finish()
        self._under_way = self._thread.submit(self._do, hand_on)

    def finish(self) -> None:
        """Wait until the last batch that was given is handed on."""
        if self._under_way is not None:
            self._under_way.result()
            self._under_way = None

    def _do(self, hand_on: Callable[[], None]) -> None:
        try:
            hand_on()
        except Unavailable as error:
            # The leases lapse, and the cases are read again; the next look at the line or the ledger says that it is away.
            logger().warning("results_not_handed_on", code=error.code)
        except BaseException as error:
            logger().critical("hand_over_died", exc_info=error)
            self._on_death()
            raise
