"""A6, A7, A8, A9: doorbells doubled, a worker frozen past its lease, Valkey emptied, and nothing at all."""

import signal
import time

from pipeline.flow import Pool
from pipeline.persistence.ledger.claims import LEASE_S
from tests.faults.arena import Arena, Row, Tell, arena, slower_than
from tests.faults.load import Load
from tests.faults.observe import events_of, republished
from tests.faults.processes import WorkerGroup
from tests.faults.servers import Servers
from tests.faults.stub_stages import Manner

COPIES = 3
HELD = 4
"""Cases in the frozen worker's hands."""
RUNG_AGAIN_S = 5.0
MOST_REPUBLISHED = 0.01
OLD_S = 15.0
"""How old the backlog of A9 grows before somebody works on it: far beyond every rule that would judge by age."""


def tripled_doorbells(servers: Servers, tell: Tell, *, cases: int) -> Row:
    """A6: every message three times, shuffled."""
    with arena(servers, "a6", Load(cases, copies=COPIES), Manner(copies=COPIES), tell) as run:
        run.group.start_sweeper()
        run.group.start()
        run.submit()
        run.drain()
        verdict, _ = run.judge(most_reexecuted=0)
        run.strikes = [0.0] * COPIES
        return run.row("A6", "every doorbell three times, shuffled", verdict, recovered_s=None)


def frozen_worker(servers: Servers, tell: Tell) -> Row:
    """A7: a worker that holds cases is stopped past its lease; it wakes when another has answered them."""
    with arena(servers, "a7", Load(HELD, together=HELD), Manner(), tell) as run:
        run.group.start_sweeper()
        recovered, refused = [], 0
        for number, pool in enumerate((Pool.INTAKE, Pool.REPORTING)):
            recovered_s, count = _freeze_one(run, pool, number)
            recovered.append(recovered_s)
            refused += count
        verdict, _ = run.judge(most_reexecuted=2 * HELD)
        shortfalls = slower_than(LEASE_S + 10, max(recovered), "a frozen worker's case")
        if refused != 2 * HELD:
            shortfalls.append(f"{refused} stale completions refused, expected {2 * HELD}")
        return run.row("A7", "worker frozen past its lease, woken", verdict, recovered_s=max(recovered), shortfalls=shortfalls)


def _freeze_one(run: Arena, pool: Pool, number: int) -> tuple[float, int]:
    first = WorkerGroup(run.place, Manner(), name=f"first-{pool.value}")
    second = WorkerGroup(run.place, Manner(), name=f"second-{pool.value}")
    claimed = {Pool.INTAKE: "fetching", Pool.REPORTING: "postprocessing"}[pool]
    log = [first.log_of(pool.value)]
    try:
        first.start()
        run.submit(Load(HELD, together=HELD, reference=f"hold {pool.value}"))
        run.until(lambda _: _count_in(run, claimed) == HELD, f"until {pool.value} holds {HELD} cases")
        first.signal(pool, signal.SIGSTOP)
        frozen_at = time.time()
        run.strikes.append(frozen_at)
        second.start()
        run.until(lambda completed: completed >= HELD * (number + 1), f"{pool.value} is frozen")
        recovered_s = time.time() - frozen_at
        first.signal(pool, signal.SIGCONT)
        run.until(lambda _: len(events_of(log, "work_superseded")) >= HELD, f"{pool.value} is awake", limit_s=15.0)
        run.await_submitted()
        return recovered_s, len(events_of(log, "work_superseded"))
    finally:
        first.close()
        second.close()


def _count_in(run: Arena, state: str) -> int:
    ((count,),) = run.watcher.rows("SELECT count(*) FROM cases WHERE state = %s", state)
    return int(count)


def emptied_valkey(servers: Servers, tell: Tell, *, cases: int, times: int) -> Row:
    """A8: FLUSHALL in mid-run; every case that was waiting is rung again."""
    slowest_s = 0.0
    with arena(servers, "a8", Load(cases, most_open=800), Manner(), tell) as run:
        run.group.start_sweeper()
        run.group.start()
        run.submit()
        for number in range(1, times + 1):
            share = cases * number // (times + 1)
            run.until(lambda completed, share=share: completed >= share, f"until flush {number} of {times}")  # type: ignore[misc]
            waiting = run.watcher.queued()
            run.servers.flush()
            struck_at = time.time()
            run.strikes.append(struck_at)
            run.until(
                lambda _, waiting=waiting, since=struck_at: run.watcher.not_rung_since(waiting, since) == 0,  # type: ignore[misc]
                f"flushed with {len(waiting)} waiting",
            )
            slowest_s = max(slowest_s, time.time() - struck_at)
        run.drain()
        verdict, _ = run.judge(most_reexecuted=0)
        shortfalls = slower_than(RUNG_AGAIN_S, slowest_s, "ringing all again")
        return run.row("A8", "FLUSHALL", verdict, recovered_s=slowest_s, shortfalls=shortfalls)


def quiet_backlog(servers: Servers, tell: Tell, *, cases: int) -> Row:
    """A9: an old backlog in two lanes, a slow consumer, no fault: nothing is lost, so next to nothing is sent again."""
    with arena(servers, "a9", Load(cases, most_open=cases), Manner(body_s=0.005), tell) as run:
        run.group.start_sweeper()
        run.submit()
        run.await_submitted()
        until = time.monotonic() + OLD_S
        run.until(lambda _: time.monotonic() > until, "the backlog grows old")
        run.group.start()
        run.submit(Load(cases // 10, most_open=2 * cases, seed=2))
        run.drain()
        verdict, _ = run.judge(most_reexecuted=0)
        again = republished(run.group.log_of("sweeper"))
        count, most = sum(again.values()), MOST_REPUBLISHED * verdict.cases
        shortfalls = [f"{count} doorbells sent again without a fault, bar {most:.0f}"] if count > most else []
        return run.row("A9", "no fault, old backlog", verdict, recovered_s=None, shortfalls=shortfalls)
