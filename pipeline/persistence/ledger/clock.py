"""The ledger's clock as this process tells it: what deadlines, expiries and due moments are stated in and compared with."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from sqlalchemy import text

from pipeline.errors import LedgerUnavailable
from pipeline.persistence.ledger.engine import Ledger, run

REREAD_S = 60.0
"""Between two looks at the database's clock; the monotonic clock loses less than a few milliseconds in that time."""
FIRST_LOOKS = 2
"""The first question connects as well, so its answer proves little."""

_NOW = text("SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS float8) AS unix_s")


class LedgerClock:
    """The database's clock, carried on by the monotonic one between two looks at it.

    Whoever sets this host's clock forward or back changes nothing here. Safe to be asked from many threads.

    Parameters
    ----------
    ledger
        Whose clock it is.
    monotonic
        Seconds that only ever run forward.
    """

    def __init__(self, ledger: Ledger, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._ledger, self._monotonic = ledger, monotonic
        self._offset_s: float | None = None
        self._read_at = 0.0
        self._reading = threading.Lock()

    def now(self) -> datetime:
        """The moment, aware.

        Raises
        ------
        LedgerUnavailable
            The clock was never read, and cannot be now. Once it was, an absent ledger does not stop it.
        """
        return datetime.fromtimestamp(self.unix_s(), UTC)

    def unix_s(self) -> float:
        """The moment in Unix seconds.

        Raises
        ------
        LedgerUnavailable
            As `now`.
        """
        if self._offset_s is None:
            with self._reading:
                self._read_first()
        elif self._monotonic() - self._read_at >= REREAD_S and self._reading.acquire(blocking=False):
            try:
                self._read_again()
            finally:
                self._reading.release()
        assert self._offset_s is not None  # noqa: S101 - for the type checker: the first look has set it or raised
        return self._monotonic() + self._offset_s

    def _read_first(self) -> None:
        for _ in range(FIRST_LOOKS if self._offset_s is None else 0):
            self._read()

    def _read_again(self) -> None:
        try:
            self._read()
        except LedgerUnavailable:
            # It goes on as it went; the next look is due as after any other.
            self._read_at = self._monotonic()

    def _read(self) -> None:
        """Move the offset as far as one question and its answer prove, and no further: a slow answer proves little."""
        asked_at = self._monotonic()
        theirs_s = float(run(self._ledger.relaxed, _NOW)[0].unix_s)
        answered_at = self._monotonic()
        least_s, most_s = theirs_s - answered_at, theirs_s - asked_at
        known_s = (least_s + most_s) / 2 if self._offset_s is None else self._offset_s
        self._offset_s = min(max(known_s, least_s), most_s)
        self._read_at = answered_at
