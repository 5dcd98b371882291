"""The one layer that retries: rings doorbells that are probably gone, frees lapsed claims, reclaims tensors."""

import signal
import threading
import time
from collections.abc import Sequence
from types import FrameType

from celery import Celery

from pipeline.cases.states import CaseState
from pipeline.deadline import utc_now
from pipeline.errors import Quarantined, Superseded, Unavailable
from pipeline.flow import Pool
from pipeline.observability import metrics
from pipeline.observability.log import about_case, configure_logs, logger
from pipeline.persistence.ledger import sweep
from pipeline.persistence.ledger.claims import Rung, read_unclaimed
from pipeline.persistence.ledger.deliveries import due_deliveries
from pipeline.persistence.waiting_line import queue_errors
from workers.app import make_app, unacked_hash
from workers.doorbell import place_in_line, ring, ring_delivery
from workers.endings import Ending, fail
from workers.pool_process import say_ready
from workers.settings import Settings
from workers.wiring import Services, open_services

ROUND_S = 1.0
SLICE = 500
"""Most doorbells of one kind in a round: a storm after an outage would be a second outage."""
RECLAIM_EVERY_S = 10.0
PURGE_EVERY_S = 3600.0
KEYS_KEPT_HOURS = 24
QUEUE_POOLS = (Pool.INTAKE, Pool.REPORTING)
"""Pools whose work waits in a Celery queue; inference has the waiting line."""


class Sweeper:
    """One round a second; every round is safe to run twice and beside another sweeper."""

    def __init__(self, services: Services, app: Celery) -> None:
        self._services, self._app = services, app
        self._last_event = {pool: sweep.last_event_id(services.ledger) for pool in QUEUE_POOLS}
        self._seen_no = dict.fromkeys(QUEUE_POOLS, 0)
        self._incarnation: str | None = None
        self._reclaimed_at = self._purged_at = time.monotonic()

    def round(self) -> None:
        """Look once at everything that may be stuck.

        Raises
        ------
        Unavailable
            The ledger or Redis is away; the next round tries again.
        """
        counts = sweep.open_counts(self._services.ledger)
        self._show(counts)
        if counts:
            self._sweep_cases()
        for delivery_id in due_deliveries(self._services.ledger, limit=SLICE, settle_s=sweep.SETTLE_S):
            ring_delivery(self._app, delivery_id)
        self._tidy()
        metrics.SWEEPER_LAST_SUCCESS.set_to_current_time()

    def _sweep_cases(self) -> None:
        ledger = self._services.ledger
        for pool in (*QUEUE_POOLS, Pool.INFERENCE):
            lapsed = sweep.free_expired(ledger, pool, limit=SLICE)
            metrics.LEASES_EXPIRED.labels(pool.value).inc(len(lapsed))
            self._ring(pool, lapsed, "lease-expired")
            self._ring(pool, sweep.ring_due(ledger, pool, limit=SLICE), "due")
            self._quarantine(pool)
        is_new_redis = self._redis_was_replaced()
        for pool in QUEUE_POOLS:
            self._last_event[pool], seen_no = sweep.newest_seen(ledger, pool, after_id=self._last_event[pool])
            self._seen_no[pool] = max(self._seen_no[pool], seen_no)
            self._ring(pool, sweep.ring_overtaken(ledger, pool, seen_no=self._seen_no[pool], limit=SLICE), "overtaken")
            if is_new_redis or self._queue_is_empty(pool):
                self._ring(pool, sweep.ring_all(ledger, pool, limit=SLICE), "queue-emptied")
        self._mend_lines()

    def _ring(self, pool: Pool, rungs: list[Rung], cause: str) -> None:
        ring(self._app, pool, rungs)
        if rungs:
            metrics.MESSAGES_REPUBLISHED.labels(pool.value, cause).inc(len(rungs))
            logger().info("rung_again", pool=pool.value, cause=cause, count=len(rungs))

    def _mend_lines(self) -> None:
        """Put cases in line that the ledger knows as waiting and the line does not."""
        waiting = sweep.awaiting_inference(self._services.ledger, limit=SLICE)
        for model in {case.model for case in waiting} & set(self._services.cards):
            line = self._services.line(model)
            of_model = {case.rung.case_id: case for case in waiting if case.model == model}
            lost = [of_model[case_id] for case_id in line.missing(list(of_model))]
            was_empty = line.join(place_in_line(case.rung, accepted_at=case.accepted_at, image_count=case.image_count) for case in lost)
            self._ring(Pool.INFERENCE, [case.rung for case in lost[:was_empty]], "not-in-line")

    def _quarantine(self, pool: Pool) -> None:
        for spent in sweep.find_spent(self._services.ledger, pool, limit=SLICE):
            case = read_unclaimed(self._services.ledger, spent.case_id)
            if case is None:
                continue
            with about_case(spent.case_id):
                try:
                    ending = Ending(case, CaseState(spent.state), {})
                    fail(self._app, self._services, ending, Quarantined("too many tries", pool=pool.value, tries=case.tries))
                except Superseded:
                    continue
                metrics.QUARANTINED.labels(pool.value).inc()
                logger().error("case_quarantined", pool=pool.value, tries=case.tries)

    def _redis_was_replaced(self) -> bool:
        with queue_errors():
            incarnation = str(self._services.redis.info("server")["run_id"])
        was_replaced = self._incarnation not in (None, incarnation)
        self._incarnation = incarnation
        return was_replaced

    def _queue_is_empty(self, pool: Pool) -> bool:
        """Nothing queued in any priority and nothing in a worker's hands."""
        with queue_errors(), self._services.redis.pipeline(transaction=False) as pipe:
            for step in ("", "\x06\x163", "\x06\x166", "\x06\x169"):
                pipe.llen(pool.value + step)
            pipe.hlen(unacked_hash(pool))
            return not any(pipe.execute())

    def _show(self, counts: Sequence[tuple[str, int, float]]) -> None:
        open_now = {state: (count, oldest_s) for state, count, oldest_s in counts}
        for state in CaseState:
            count, oldest_s = open_now.get(state.value, (0, 0.0))
            metrics.QUEUE_DEPTH.labels(state.value).set(count)
            metrics.QUEUE_OLDEST_SECONDS.labels(state.value).set(oldest_s)

    def _tidy(self) -> None:
        now = time.monotonic()
        if now - self._reclaimed_at >= RECLAIM_EVERY_S:
            self._reclaimed_at = now
            metrics.TENSORS_RECLAIMED.inc(self._services.tensors.reclaim(now=utc_now()))
            metrics.TENSOR_BYTES.set(self._services.tensors.used_bytes())
        if now - self._purged_at >= PURGE_EVERY_S:
            self._purged_at = now
            sweep.purge_keys(self._services.ledger, older_than_hours=KEYS_KEPT_HOURS)


def main() -> None:
    """Run the sweeper: `python -m workers.sweeper`."""
    settings = Settings()
    configure_logs(level=settings.log_level, style=settings.log_format, process="sweeper")
    stop = threading.Event()

    def stopping(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, stopping)
    signal.signal(signal.SIGINT, stopping)
    with open_services(settings, role="sweeper", connections=2) as services:
        sweeper = Sweeper(services, make_app(settings))
        say_ready(settings)
        while not stop.wait(ROUND_S):
            try:
                sweeper.round()
            except Unavailable as error:
                logger().warning("round_cut_short", code=error.code)


if __name__ == "__main__":
    main()
