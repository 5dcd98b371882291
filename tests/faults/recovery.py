"""B1, B2: the only inference worker of the real product is killed, or stands still for long, under an open-loop load."""

import time
from collections import Counter
from collections.abc import Sequence

from tests.faults.arena import Row, Tell, slower_than
from tests.faults.checker import Verdict
from tests.faults.open_load import Sent
from tests.faults.product import Product, running_product
from tests.faults.servers import Servers

KILLED_LOAD, FROZEN_LOAD = 0.6, 0.8
"""Shares of what the product was measured to do on this machine, a moment before."""
STEADY_S, AFTER_S = 9.0, 17.0
WINDOW_S, BACK = 2.0, 0.95
"""Throughput is back when so much of the steady throughput ends within one window that lies after the fault."""
BACK_S = 15.0
FROZEN_S = 40.0
BATCH = 16
LATEST_LOAD_S = 0.02
"""An open-loop load whose cases come later than this says nothing about the product."""


def back_after_s(ended_at: Sequence[float], struck_at: float, *, since: float, now: float) -> float | None:
    """Seconds from the fault to the end of the first window with the steady throughput; None where there is none.

    Parameters
    ----------
    ended_at
        When each case ended.
    struck_at, since
        The fault, and from when on the load was steady before it.
    now
        Where the fault is over: no window begins before.
    """
    steady = sum(since <= at < struck_at for at in ended_at) / (struck_at - since)
    later = sorted(at for at in ended_at if at >= now)
    for end in later:
        in_window = sum(end - WINDOW_S < at <= end for at in later)
        if end - WINDOW_S >= now and in_window >= BACK * steady * WINDOW_S:
            return end - now
    return None


def killed_inference(_servers: Servers, tell: Tell) -> Row:
    """B1: `kill -9` of the only inference worker at 60 % load; the supervisor starts it again."""
    with running_product(tell) as product:
        capacity = product.capacity()
        with product.loaded(KILLED_LOAD * capacity) as sent:
            product.pass_time(STEADY_S, "steady")
            struck_at = time.time()
            product.deployment.worker("inference").kill()
            product.pass_time(AFTER_S, "killed")
        is_quiet = product.await_quiet()
        back_s = back_after_s(product.ended_at(), struck_at, since=struck_at - STEADY_S + WINDOW_S, now=struck_at)
        verdict = product.judge(sent, most_reexecuted=2 * BATCH)
        what = f"kill -9 of the only inference worker at {KILLED_LOAD:.0%} of {capacity:.0f} cases a second (real product)"
        shortfalls = [*slower_than(BACK_S, back_s, "95 % of the throughput"), *_shortfalls(verdict, sent, is_quiet=is_quiet)]
        return _row(product, "B1", what, verdict, recovered_s=back_s, shortfalls=shortfalls)


def frozen_inference(_servers: Servers, tell: Tell) -> Row:
    """B2: the only inference worker stands still for 40 s at 80 % load; what cannot be read in time is answered by the clock."""
    with running_product(tell) as product:
        capacity = product.capacity()
        with product.loaded(FROZEN_LOAD * capacity) as sent:
            product.pass_time(STEADY_S, "steady")
            struck_at = time.time()
            with product.deployment.paused("inference"):
                product.pass_time(FROZEN_S, "the model stands still")
            thawed_at = time.time()
            product.pass_time(AFTER_S, "the model is back")
        is_quiet = product.await_quiet()
        back_s = back_after_s(product.ended_at(), struck_at, since=struck_at - STEADY_S + WINDOW_S, now=thawed_at)
        verdict = product.judge(sent, most_reexecuted=8 * BATCH)
        share = product.preliminary_share(struck_at, thawed_at)
        what = f"inference frozen {FROZEN_S:.0f} s at {FROZEN_LOAD:.0%} load (real product; {share:.0%} of that time's cases preliminary)"
        return _row(product, "B2", what, verdict, recovered_s=back_s, shortfalls=_shortfalls(verdict, sent, is_quiet=is_quiet))


def _shortfalls(verdict: Verdict, sent: Sent, *, is_quiet: bool) -> list[str]:
    found = [] if is_quiet else ["cases were still open when nothing should have been left to do"]
    found += [f"{verdict.unanswered} cases without an answer a second after their deadline"] if verdict.unanswered else []
    found += [f"{verdict.lost} cases lost"] if verdict.lost else []
    found += [f"{verdict.failed} cases failed although nothing was wrong with them"] if verdict.failed else []
    found += [f"{sent.refused + sent.unknown} submits were not answered with a promise"] if sent.refused or sent.unknown else []
    late_s = sent.lag_p99_s()
    return found + ([f"the load itself was late by {late_s * 1000:.0f} ms (P99): not valid"] if late_s > LATEST_LOAD_S else [])


def _row(product: Product, fault: str, what: str, verdict: Verdict, *, recovered_s: float | None, shortfalls: Sequence[str]) -> Row:
    broken = Counter(violation.invariant for violation in verdict.violations)
    said = [f"{invariant} broken {count} times" for invariant, count in sorted(broken.items())]
    seconds = time.monotonic() - product.begun
    return Row(fault, what, 1, verdict, recovered_s, product.republished(), 0, seconds, (*said, *shortfalls))
