"""Signs of life: a thread of its own renews what this process holds, while the work goes on elsewhere."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID

from pipeline.errors import LedgerUnavailable
from pipeline.observability.log import logger
from pipeline.persistence.ledger.claims import RENEW_EVERY_S, renew_leases
from pipeline.persistence.ledger.engine import Ledger


class LeaseKeeper:
    """Renews the leases of all claims that are held, every two seconds, in one statement."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._held: dict[UUID, int] = {}
        self._changed = threading.Condition()
        self._is_open = True
        self._is_idle = False
        threading.Thread(target=self._keep, name="leases", daemon=True).start()

    @contextmanager
    def holding(self, claims: Sequence[tuple[UUID, int]]) -> Iterator[None]:
        """Keep these claims alive inside the block."""
        with self._changed:
            self._held.update(claims)
            # Otherwise it sleeps until the next renewal is due, and to be woken would cost more than the claim's own bookkeeping.
            if self._is_idle:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                for case_id, attempt in claims:
                    if self._held.get(case_id) == attempt:
                        del self._held[case_id]

    def close(self) -> None:
        """Stop renewing."""
        with self._changed:
            self._is_open = False
            self._changed.notify()

    def _keep(self) -> None:
        while True:
            with self._changed:
                # Idle processes sleep here without a single wake-up.
                self._is_idle = True
                self._changed.wait_for(lambda: self._held or not self._is_open)
                self._is_idle = False
                if not self._is_open:
                    return
                # Not woken by new claims: they are fresh, and each would cost a statement.
                self._changed.wait_for(lambda: not self._is_open, RENEW_EVERY_S)
                held = list(self._held.items())
            if held:
                try:
                    renew_leases(self._ledger, held)
                except LedgerUnavailable:
                    # The fence decides what our work is worth; the next round tries again.
                    logger().warning("leases_not_renewed", count=len(held))
