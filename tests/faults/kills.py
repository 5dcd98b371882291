"""A1, A2, A3: workers, Valkey and PostgreSQL are killed while cases are submitted."""

import random
import time

from tests.faults.arena import Arena, Row, Tell, arena, slower_than
from tests.faults.checker import longest_gap_s, longest_silence_s
from tests.faults.load import Load
from tests.faults.servers import Servers
from tests.faults.stub_stages import Manner

DEAD_WORKER_S = 40.0
SERVER_BACK_S = 10.0
EVERY = 4
ENDLESS = 1_000_000


def killed_workers(servers: Servers, tell: Tell, *, cases: int, kills: int, valkey_too: bool = False) -> Row:
    """A1: `kill -9` of all pools at once, 0.1 to 1 s after they made progress; at each fourth, of the sweeper too.

    A2 (`valkey_too`): before each fourth, Valkey, which keeps nothing, is killed under the living workers.
    """
    fault = "A2" if valkey_too else "A1"
    valkey_strikes: list[float] = []
    with arena(servers, fault.lower(), Load(ENDLESS), Manner(), tell) as run:
        run.group.start_sweeper()
        run.group.start()
        run.submit()
        moments = random.Random(7)
        for number in range(1, kills + 1):
            share = cases * number // (kills + 1)
            run.until(lambda completed, share=share: completed >= share, f"kill {number} of {kills}")  # type: ignore[misc]
            if valkey_too and number % EVERY == 0:
                valkey_strikes.append(_kill_valkey(run))
            _kill_group(run, moments, sweeper_too=number % EVERY == 0)
        # No kill may strike an idle group, so the load goes on until the last; then up to the count that was asked for.
        run.until(lambda completed: completed >= cases, "submitting the rest")
        run.stop_submitting()
        run.drain()
        verdict, seen = run.judge(most_reexecuted=2 * (kills + len(valkey_strikes)) * run.group.in_hand)
        again_s = longest_gap_s(run.strikes, seen.events)
        silent_s = longest_silence_s(valkey_strikes, seen.cases) if valkey_too else None
        shortfalls = slower_than(DEAD_WORKER_S, again_s or 0.0, "a dead worker's case")
        if valkey_too:
            shortfalls += slower_than(SERVER_BACK_S, silent_s if valkey_strikes else 0.0, "Valkey's return")
        recovered_s = max((each for each in (again_s, silent_s) if each is not None), default=None)
        what = "kill -9 of all workers" + (f", and of Valkey {len(valkey_strikes)} times" if valkey_too else "")
        return run.row(fault, what, verdict, recovered_s=recovered_s, shortfalls=shortfalls)


def _kill_valkey(run: Arena) -> float:
    struck_at = run.servers.kill_valkey()
    run.until(lambda _: run.watcher.answered_since(struck_at) or run.watcher.open_count() == 0, "Valkey was killed")
    return struck_at


def _kill_group(run: Arena, moments: random.Random, *, sweeper_too: bool) -> None:
    before = run.watcher.completed()
    run.until(lambda completed: completed > before or run.watcher.open_count() == 0, "first progress")
    time.sleep(moments.uniform(0.1, 1.0))
    run.group.kill()
    run.strikes.append(time.time())
    if sweeper_too:
        run.group.kill_sweeper()
        run.group.start_sweeper()
    run.group.start()


def killed_postgres(servers: Servers, tell: Tell, *, kills: int) -> Row:
    """A3: PostgreSQL and all its backends are killed while clients submit, which they do until the last kill is survived."""
    with arena(servers, "a3", Load(ENDLESS, most_open=200), Manner(), tell) as run:
        run.group.start_sweeper()
        run.group.start()
        run.submit()
        moments = random.Random(8)
        for number in range(1, kills + 1):
            before = run.watcher.completed()
            run.until(lambda completed, before=before: completed > before, f"kill {number} of {kills}")  # type: ignore[misc]
            time.sleep(moments.uniform(0.1, 1.0))
            struck_at = run.servers.kill_postgres()
            run.strikes.append(struck_at)
            run.until(lambda _, since=struck_at: run.watcher.answered_since(since), "PostgreSQL was killed")  # type: ignore[misc]
        run.stop_submitting()
        run.drain()
        verdict, seen = run.judge()
        silent_s = longest_silence_s(run.strikes, seen.cases)
        shortfalls = slower_than(SERVER_BACK_S, silent_s, "PostgreSQL's return")
        return run.row("A3", "kill -9 of PostgreSQL", verdict, recovered_s=silent_s, shortfalls=shortfalls)
