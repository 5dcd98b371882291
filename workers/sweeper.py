"""The one layer that retries: rings doorbells that are probably gone, frees lapsed claims, reclaims tensors.

Two run; one leads.
"""

import signal
import threading
import time
from collections.abc import Sequence
from functools import partial
from types import FrameType
from typing import Protocol
from uuid import uuid4

from celery import Celery

from pipeline.cases.retries import budget_change, is_poison
from pipeline.cases.states import POOL_STATES, CaseState
from pipeline.errors import Quarantined, Superseded, Unavailable
from pipeline.flow import Lane, Pool
from pipeline.observability import metrics
from pipeline.observability.log import about_case, configure_logs, logger
from pipeline.persistence.ledger import sweep
from pipeline.persistence.ledger.claims import Claimed, Rung, read_unclaimed
from pipeline.persistence.ledger.deliveries import due_deliveries
from pipeline.persistence.ledger.engine import Ledger
from pipeline.persistence.ledger.leadership import Leadership
from pipeline.persistence.ledger.retries import change_budgets, unpaid_retries
from pipeline.persistence.waiting_line import queue_errors
from workers.app import make_app, queue_keys, unacked_index
from workers.doorbell import place_in_line, ring, ring_delivery
from workers.endings import Ending, fail, try_later
from workers.pool_process import say_ready
from workers.settings import Settings
from workers.wiring import Services, open_services

ROUND_S = 1.0
SLICE = 500
"""Most rows of one kind that a round looks at."""
PUT_OFF_A_ROUND = 100
"""Most retries of a pool that a round puts off: each is a commit that waits for the disk."""
BUDGET_SPENT = "retry-budget-spent"
TRIES_SPENT = "tries-spent"
SLICE_AFTER_LOSS = 5_000
"""Most doorbells of a pool that a round rings where all are gone: the budget is for single losses."""
CLAIMED_WITHIN_S = 5.0
"""A worker claims first and takes no more than it works on: what it took longer ago it has claimed, or it is dead."""
MARK = "secondread:mark"
"""A key that stays for as long as nobody empties Redis."""
RECLAIM_EVERY_S = 10.0
PURGE_EVERY_S = 3600.0
KEYS_KEPT_HOURS = 24
POOLS = (Pool.REPORTING, Pool.INFERENCE, Pool.INTAKE)
"""Nearest to the answer first: what the budget does not reach waits for the next round."""
QUEUE_POOLS = (Pool.REPORTING, Pool.INTAKE)
"""Pools whose work waits in a Celery queue; inference has the waiting line."""


class FindRungs(Protocol):
    """One of the ledger's questions for doorbells to ring again."""

    def __call__(self, ledger: Ledger, pool: Pool, /, *, limit: int) -> list[Rung]:
        """Number some doorbells anew, `limit` at most."""
        ...


class Sweeper:
    """A leader's time in office: one round a second, each safe to run twice and beside another sweeper."""

    def __init__(self, services: Services, app: Celery) -> None:
        self._services, self._app = services, app
        self._last_event = sweep.last_event_id(services.ledger)
        self._seen_nos = {pool: dict.fromkeys(Lane, 0) for pool in QUEUE_POOLS}
        self._budget, self._rings_left = sweep.RingBudget(), 0
        self._emptied: dict[Pool, int] = {}
        self._line_read_to = 0
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
        # First: no doorbell is numbered anew while nobody can hear it.
        is_new_redis = self._redis_was_replaced()
        seen = sweep.newest_seen(self._services.ledger, after_id=self._last_event)
        self._last_event = seen.last_id
        self._rings_left = self._budget.next_round(seen.claim_count)
        tokens = self._budget_retries(seen)
        for pool in POOLS:
            lapsed = self._ring_some(pool, "lease-expired", sweep.free_expired)
            metrics.LEASES_EXPIRED.labels(pool.value).inc(lapsed)
            self._retry(pool, tokens[pool])
            self._quarantine(pool)
        for pool in QUEUE_POOLS:
            seen_nos = self._seen_nos[pool]
            for lane, publish_no in seen.publish_nos.get(pool, {}).items():
                seen_nos[lane] = max(seen_nos[lane], publish_no)
            self._ring_some(pool, "overtaken", partial(sweep.ring_overtaken, seen_nos=seen_nos))
            self._ring_emptied(pool, is_new_redis)
        if self._rings_left == 0:
            metrics.RING_BUDGET_SPENT.inc()
        self._mend_lines()

    def _budget_retries(self, seen: sweep.Seen) -> dict[Pool, float]:
        """Let each pool's retry budget gain by what was seen; return what it holds."""
        changes = {pool: budget_change(first_attempts=seen.first_attempts.get(pool, 0), lapses=seen.lapses.get(pool, 0)) for pool in POOLS}
        tokens = change_budgets(self._services.ledger, changes)
        for pool, count in tokens.items():
            metrics.RETRY_TOKENS.labels(pool.value).set(count)
        return tokens

    def _retry(self, pool: Pool, tokens: float) -> None:
        """Ring the retries that are due, a token each; what the budget does not bear goes straight to the compensation queue."""
        if tokens - self._ring_some(pool, "due", sweep.ring_due) >= 1 or change_budgets(self._services.ledger, {pool: 0.0})[pool] >= 1:
            return
        for case_id in unpaid_retries(self._services.ledger, pool, limit=PUT_OFF_A_ROUND):
            case = read_unclaimed(self._services.ledger, case_id)
            if case is not None:
                with about_case(case_id):
                    try_later(self._services, case, POOL_STATES[pool].queued, reason=BUDGET_SPENT)
                metrics.RETRIES_SUPPRESSED.labels(pool.value, BUDGET_SPENT).inc()

    def _ring_some(self, pool: Pool, cause: str, find: FindRungs) -> int:
        """Ring what is found, as far as this round's budget goes."""
        if self._rings_left == 0:
            return 0
        rungs = find(self._services.ledger, pool, limit=self._rings_left)
        self._rings_left = max(0, self._rings_left - len(rungs))
        self._ring(pool, rungs, cause)
        return len(rungs)

    def _ring_emptied(self, pool: Pool, is_new_redis: bool) -> None:
        """Where a pool's messages are all gone: ring all cases that were published until then, a slice a round."""
        up_to_no = None if is_new_redis else self._emptied.pop(pool, None)
        is_noticed_now = up_to_no is None and (is_new_redis or self._queue_is_empty(pool))
        if is_noticed_now:
            up_to_no = sweep.newest_publish_no(self._services.ledger)
        if up_to_no is None:
            return
        rungs = sweep.ring_all(self._services.ledger, pool, up_to_no=up_to_no, limit=SLICE_AFTER_LOSS)
        self._ring(pool, rungs, "queue-emptied")
        # Once more after the first look: what was published a moment before it may have been lost as well.
        if len(rungs) == SLICE_AFTER_LOSS or (is_noticed_now and (rungs or is_new_redis)):
            self._emptied[pool] = up_to_no

    def _ring(self, pool: Pool, rungs: Sequence[Rung], cause: str) -> None:
        ring(self._app, pool, rungs)
        if rungs:
            metrics.MESSAGES_REPUBLISHED.labels(pool.value, cause).inc(len(rungs))
            logger().info("rung_again", pool=pool.value, cause=cause, count=len(rungs))

    def _mend_lines(self) -> None:
        """Put cases in line that the ledger knows as waiting and the line does not: a page a round, more where whole pages are gone."""
        for _ in range(SLICE_AFTER_LOSS // SLICE):
            page = sweep.awaiting_inference(self._services.ledger, after_no=self._line_read_to, limit=SLICE)
            self._line_read_to = page[-1].rung.publish_no if len(page) == SLICE else 0
            models = {case.model for case in page if case.model in self._services.cards}
            lost_count = sum(self._mend_line(model, [case for case in page if case.model == model]) for model in models)
            if lost_count < SLICE:
                return

    def _mend_line(self, model: str, cases: Sequence[sweep.AwaitsInference]) -> int:
        line = self._services.line(model)
        missing = set(line.missing([case.rung.case_id for case in cases]))
        lost = [case for case in cases if case.rung.case_id in missing]
        now_s = self._services.clock.unix_s()
        was_empty = line.join(
            place_in_line(case.rung, accepted_at=case.accepted_at, image_count=case.image_count, now_s=now_s) for case in lost
        )
        self._ring(Pool.INFERENCE, [case.rung for case in lost[:was_empty]], "not-in-line")
        return len(lost)

    def _quarantine(self, pool: Pool) -> None:
        for spent in sweep.find_spent(self._services.ledger, pool, limit=SLICE):
            case = read_unclaimed(self._services.ledger, spent.case_id)
            if case is None:
                continue
            with about_case(spent.case_id):
                self._set_aside(pool, case, CaseState(spent.state))

    def _set_aside(self, pool: Pool, case: Claimed, state: CaseState) -> None:
        """Put off a case that has had all its tries; end one that crashed each time, or give it to a human if it was put off before."""
        error = Quarantined("its work crashed again and again", pool=pool.value, tries=case.tries)
        has_lapsed = state is POOL_STATES[pool].claimed
        if not is_poison(case.strikes, pool=pool, lane=case.lane, has_lapsed=has_lapsed):
            try_later(self._services, case, state, reason=TRIES_SPENT)
            return
        try:
            if case.lane is Lane.COMPENSATION:
                try_later(self._services, case, state, reason=error.code, to_human=True)
            else:
                fail(self._app, self._services, Ending(case, state, {}), error)
        except Superseded:
            return
        metrics.QUARANTINED.labels(pool.value).inc()
        logger().error("case_quarantined", pool=pool.value, tries=case.tries)

    def _redis_was_replaced(self) -> bool:
        """Whether it is another server than at the last look, or one that was emptied since: the mark that we left is gone."""
        with queue_errors(), self._services.redis.pipeline(transaction=False) as pipe:
            pipe.info("server")
            pipe.set(MARK, uuid4().hex, nx=True)
            pipe.get(MARK)
            server, _, mark = pipe.execute()
        incarnation = f"{server['run_id']}:{mark}"
        was_replaced = self._incarnation not in (None, incarnation)
        self._incarnation = incarnation
        return was_replaced

    def _queue_is_empty(self, pool: Pool) -> bool:
        """Nothing queued in any priority, and nothing in a worker's hands that it may still have to claim.

        What a dead worker held lies there until its visibility is over; doorbells that were lost do not wait for that.
        """
        with queue_errors(), self._services.redis.pipeline(transaction=False) as pipe:
            for key in queue_keys(pool):
                pipe.llen(key)
            pipe.zcount(unacked_index(pool), self._services.clock.unix_s() - CLAIMED_WITHIN_S, "+inf")
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
            metrics.TENSORS_RECLAIMED.inc(self._services.tensors.reclaim(now=self._services.clock.now()))
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
    with open_services(settings, role="sweeper", connections=2) as services, Leadership(services.ledger, "sweeper") as leadership:
        say_ready(settings)
        sweep_while_leading(services, leadership, stop)


def sweep_while_leading(services: Services, leadership: Leadership, stop: threading.Event) -> None:
    """Ask once a second who leads, and run a round where it is this instance, until `stop` is set."""
    app = make_app(services.settings)
    sweeper: Sweeper | None = None
    while not stop.wait(ROUND_S):
        try:
            if not leadership.is_leader():
                # What it knew of the queues grows old: a new time in office begins with a new look.
                sweeper = None
                continue
            sweeper = sweeper or Sweeper(services, app)
            sweeper.round()
        except Unavailable as error:
            logger().warning("round_cut_short", code=error.code)


if __name__ == "__main__":
    main()
