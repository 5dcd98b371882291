"""`make ledger`: what the ledger and its doorbells cost a case, with stages and a model that do nothing.

A real Valkey, a real PostgreSQL that waits for its disk, real worker processes with the product's claims, leases, doorbells,
group commits, sweeper and guard; cases come through the door's own admission. First cases alone: the time that the ledger
adds to each. Then so many in flight that the machine has no rest: cases a second, CPU of every process, statements, bytes of
log, and how the tables grow. Prints its tables, writes build/ledger.json, ends with 1 where a bar is not reached.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import redis
from rich.console import Console

from tests.faults.arena import Arena, Tell, arena
from tests.faults.load import Load
from tests.faults.observe import republished
from tests.faults.servers import Servers, running_servers
from tests.faults.stub_stages import Manner
from tests.load.in_flight import Flight, keep_in_flight, waits_of
from tests.load.ledger_figures import Outcome, cost_of, shortfalls, waits_between
from tests.load.ledger_readings import Meters, Sample
from tests.load.ledger_table import progress_line, show, write_page

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / "build" / "ledger.json"
MINUTES = 1.25
"""Under full load, unless told otherwise; the whole run takes two."""
ENDLESS = 10_000_000
SAMPLE_S = 10.0
SAMPLES = 12
"""At least so many in a window, however short."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of what."""

    window_s: float = 60 * MINUTES
    in_flight: int = 64
    warm_cases: int = 200
    """So that every connection has its statements and every process its caches, before anything is measured."""
    alone_cases: int = 120
    alone_gap_s: float = 0.15
    lead_in_s: float = 8.0
    """Until the load is spread over the pools."""

    @property
    def sample_count(self) -> int:
        """Samples of the tables in the window: a multiple of three."""
        return 3 * max(round(self.window_s / SAMPLE_S / 3), SAMPLES // 3)


def measure(servers: Servers, plan: Plan, tell: Tell, saw: Callable[[Sample, Sample], None]) -> Outcome:
    """Run one after the other: warm up, cases alone, full load; `saw` hears of every two samples that follow each other."""
    with arena(servers, "cost", Load(ENDLESS), Manner(), tell) as run:
        run.group.start_sweeper()
        run.group.start_guard()
        run.group.start()
        _fly(run, Flight("warm", plan.warm_cases, plan.in_flight), "warming up")
        _fly(run, Flight("alone", plan.alone_cases, plan.in_flight, gap_s=plan.alone_gap_s, seed=2), "cases alone")
        loaded = run.start_load(keep_in_flight, Flight("loaded", ENDLESS, plan.in_flight))
        tell(run.watcher.completed(), f"{plan.in_flight} cases in flight: leading in")
        time.sleep(plan.lead_in_s)
        with redis.Redis.from_url(run.place.redis_url) as client:
            pids = run.group.pids | {"door": loaded.pid or 0, "valkey": servers.valkey.pid or 0}
            meters = Meters(run.watcher, client, pids=pids, postgres_pid=servers.postgres.pid or 0)
            first, begin = meters.counters(), time.time()
            samples = _look_on(run, meters, plan, saw)
            last, end = meters.counters(), time.time()
        run.stop_submitting()
        run.drain()
        tell(run.watcher.completed(), "checking every row")
        verdict, _ = run.judge(most_reexecuted=0)
        return Outcome(
            cores=os.cpu_count() or 1,
            in_flight=plan.in_flight,
            alone=waits_between(waits_of(run.place.folder, "alone")),
            loaded=waits_between(waits_of(run.place.folder, "loaded"), begin, end),
            cost=cost_of(first, last, samples),
            verdict=verdict,
            sent_again=sum(republished(run.group.log_of("sweeper")).values()),
            exits=run.group.exits,
        )


def _fly(run: Arena, flight: Flight, saying: str) -> None:
    """Let a flight come to its end; nothing is asked meanwhile, which would be measured too."""
    run.tell(run.watcher.completed(), saying)
    run.start_load(keep_in_flight, flight)
    run.await_submitted()


def _look_on(run: Arena, meters: Meters, plan: Plan, saw: Callable[[Sample, Sample], None]) -> list[Sample]:
    samples = [meters.sample()]
    begun = samples[0].at
    for number in range(1, plan.sample_count + 1):
        time.sleep(max(0.0, begun + plan.window_s * number / plan.sample_count - time.monotonic()))
        run.group.mend()
        samples.append(meters.sample())
        saw(samples[-2], samples[-1])
    return samples


def write(outcome: Outcome, short: list[str], command: str) -> None:
    """Write all figures to build/ledger.json."""
    REPORT.parent.mkdir(exist_ok=True)
    facts = asdict(outcome)
    facts["verdict"]["violations"] = len(outcome.verdict.violations)
    facts["cost"]["all_cpu_ms"] = outcome.cost.all_cpu_ms
    REPORT.write_text(json.dumps({"command": command, "shortfalls": short} | facts, indent=1) + "\n", encoding="utf-8")


class _Teller:
    """Says what is going on: each doing once, and every sample."""

    def __init__(self, console: Console) -> None:
        self._console, self._begun, self._said = console, time.monotonic(), ""

    def tell(self, completed: int, doing: str) -> None:
        """Say it if it is news."""
        if doing != self._said:
            self._said = doing
            self._console.print(f"[dim]{time.monotonic() - self._begun:4.0f} s {completed:8,} cases  {doing}[/dim]")

    def saw(self, before: Sample, now: Sample) -> None:
        """Say what has happened between two samples."""
        self.tell(now.completed, progress_line(before, now))


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(prog="python -m tests.load.ledger_cost", description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="under full load; 10 for the growth of the tables")
    parser.add_argument("--in-flight", type=int, default=Plan().in_flight, help="cases at once")
    parser.add_argument("--page", action="store_true", help="write the figures into docs/ledger-cost.md too")
    asked = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    plan = Plan(window_s=60 * asked.minutes, in_flight=asked.in_flight)
    teller = _Teller(console)
    with running_servers() as servers:
        outcome = measure(servers, plan, teller.tell, teller.saw)
    short = shortfalls(outcome)
    command = "make ledger" if len(sys.argv) == 1 else f"python -m tests.load.ledger_cost {' '.join(sys.argv[1:])}"
    write(outcome, short, command)
    if asked.page:
        write_page(outcome, short, command)
    show(outcome, short, console)
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
