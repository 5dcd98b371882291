"""What this process knows of the ledger's serving plans."""

import threading
import time
from collections.abc import Mapping
from types import MappingProxyType

from pipeline.cases.serving import ServingPlan
from pipeline.errors import LedgerUnavailable
from pipeline.observability.log import logger
from pipeline.persistence.ledger.engine import Ledger
from pipeline.persistence.ledger.models import read_plans

FRESH_S = 1.0


class ServingPlans:
    """The plan in force of each model; asks the ledger once in `fresh_s` at most, and whoever comes meanwhile does not wait."""

    def __init__(self, ledger: Ledger, *, fresh_s: float = FRESH_S) -> None:
        self._ledger, self._fresh_s = ledger, fresh_s
        self._plans: Mapping[str, ServingPlan] = MappingProxyType({})
        self._asked_at = float("-inf")
        self._asking = threading.Lock()

    def current(self) -> Mapping[str, ServingPlan]:
        """The plans by model name. While the ledger is away they are those that were last seen."""
        is_first = self._asked_at == float("-inf")
        if time.monotonic() - self._asked_at >= self._fresh_s and self._asking.acquire(blocking=is_first):
            try:
                self._ask()
            finally:
                self._asking.release()
        return self._plans

    def _ask(self) -> None:
        if time.monotonic() - self._asked_at < self._fresh_s:
            return
        try:
            self._plans = MappingProxyType(read_plans(self._ledger))
        except LedgerUnavailable as error:
            logger().warning("serving_plans_not_read", code=error.code)
        self._asked_at = time.monotonic()
