"""The figures of `make ledger`, made from two readings and the samples between them; pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.faults.checker import Verdict
from tests.load.in_flight import Wait
from tests.load.ledger_readings import Counters, Sample

CASES_PER_S = 150.0
"""What one PostgreSQL must sustain on this machine, through all stages."""
MOST_CPU_MS = 2 * 1000 / CASES_PER_S
"""The same on two cores: CPU of all processes together, a case."""
RISE = 1.5
"""Dead rows are flat where the last third of the run has at most so many times the most of the middle third ..."""
FEW_DEAD_ROWS = 1_000
"""... or so few that a table's vacuum need not have been yet."""
LATE_MS = 20.0
"""Where the load itself came later than this (99 in 100 cases), the waits of cases alone are not worth much."""


@dataclass(frozen=True, slots=True)
class Third:
    """A third of the window."""

    cases_per_s: float
    most_dead_rows: Mapping[str, int]
    """By table."""
    vacuums: int
    bytes_a_case: Mapping[str, float]
    """At its end: a table's rows and indexes, over all cases so far."""


@dataclass(frozen=True, slots=True)
class Waits:
    """Milliseconds that clients waited for their answers."""

    count: int
    p50_ms: float
    p95_ms: float
    accepted_p50_ms: float
    """Until the door said that the case is committed."""
    late_p99_ms: float
    """How late the load was with sending."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one case costs, while the load was steady."""

    seconds: float
    cases: int
    cases_per_s: float
    cores_of_others: float
    """Busy with what is none of ours: where this is not next to nothing, the figures say little."""
    cpu_ms: Mapping[str, float]
    """By process."""
    loop_ms: Mapping[str, float]
    """Of each pool: Celery's loop."""
    backend_ms: Mapping[str, float]
    """Of `postgres`, by the process whose statements it ran."""
    commits: float
    """Every statement commits by itself, so this is also the number of statements."""
    redis_commands: float
    wal_bytes: float
    wal_page_images: float
    wal_fsyncs: float
    hot_share: float
    """Of the updates of the table of cases: those that touched no index."""
    thirds: tuple[Third, Third, Third]

    @property
    def all_cpu_ms(self) -> float:
        """Of all processes together, those of the load included."""
        return sum(self.cpu_ms.values())


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything that a run has shown."""

    cores: int
    in_flight: int
    alone: Waits
    loaded: Waits
    cost: Cost
    verdict: Verdict
    sent_again: int
    exits: int


def waits_between(waits: Sequence[Wait], begin: float = 0.0, end: float = float("inf")) -> Waits:
    """Sum up the waits of the cases that were answered between two moments (Unix seconds); needs two cases."""
    chosen = [wait for wait in waits if begin <= wait.answered_at <= end]
    answered = statistics.quantiles((wait.answered_at - wait.due_at for wait in chosen), n=100)
    late = statistics.quantiles((wait.sent_at - wait.due_at for wait in chosen), n=100)
    accepted_s = statistics.median(wait.accepted_at - wait.sent_at for wait in chosen)
    return Waits(len(chosen), 1000 * answered[49], 1000 * answered[94], 1000 * accepted_s, 1000 * late[98])


def cost_of(first: Counters, last: Counters, samples: Sequence[Sample]) -> Cost:
    """Divide what was used between two readings by the cases that were completed between them."""
    cases, seconds = last.completed - first.completed, last.at - first.at
    ours_s = sum(last.cpu_s.values()) - sum(first.cpu_s.values())
    updates = last.updates - first.updates
    return Cost(
        seconds=seconds,
        cases=cases,
        cases_per_s=cases / seconds,
        cores_of_others=max(0.0, last.machine_busy_s - first.machine_busy_s - ours_s) / seconds,
        cpu_ms=_ms_a_case(first.cpu_s, last.cpu_s, cases),
        loop_ms=_ms_a_case(first.loop_cpu_s, last.loop_cpu_s, cases),
        backend_ms=_ms_a_case(first.backend_cpu_s, last.backend_cpu_s, cases),
        commits=(last.commits - first.commits) / cases,
        redis_commands=(last.redis_commands - first.redis_commands) / cases,
        wal_bytes=(last.wal_bytes - first.wal_bytes) / cases,
        wal_page_images=(last.wal_page_images - first.wal_page_images) / cases,
        wal_fsyncs=(last.wal_fsyncs - first.wal_fsyncs) / cases,
        hot_share=(last.hot_updates - first.hot_updates) / updates if updates else 0.0,
        thirds=_thirds(samples),
    )


def _ms_a_case(first: Mapping[str, float], last: Mapping[str, float], cases: int) -> dict[str, float]:
    return {name: 1000 * (cpu_s - first.get(name, 0.0)) / cases for name, cpu_s in last.items()}


def _thirds(samples: Sequence[Sample]) -> tuple[Third, Third, Third]:
    """Cut a window into thirds: a sample at its begin, and a multiple of three after it."""
    count = (len(samples) - 1) // 3
    one, two, three = (_third(samples[number * count : (number + 1) * count + 1]) for number in range(3))
    return one, two, three


def _third(samples: Sequence[Sample]) -> Third:
    first, last = samples[0], samples[-1]
    return Third(
        cases_per_s=(last.completed - first.completed) / (last.at - first.at),
        most_dead_rows={name: max(sample.tables[name].dead_rows for sample in samples[1:]) for name in last.tables},
        vacuums=sum(table.vacuums - first.tables[name].vacuums for name, table in last.tables.items()),
        bytes_a_case={name: (table.bytes + table.index_bytes) / last.completed for name, table in last.tables.items()},
    )


def is_flat(thirds: tuple[Third, Third, Third], table: str) -> bool:
    """Whether a table's dead rows do not rise over the second half of a run."""
    _, middle, last = (third.most_dead_rows[table] for third in thirds)
    return last <= max(RISE * middle, FEW_DEAD_ROWS)


def shortfalls(outcome: Outcome) -> list[str]:
    """What falls short of its bar, in sentences."""
    cost, verdict = outcome.cost, outcome.verdict
    found = []
    if cost.cases_per_s < CASES_PER_S:
        found.append(f"{cost.cases_per_s:.0f} cases/s, bar {CASES_PER_S:.0f}")
    if cost.all_cpu_ms > MOST_CPU_MS:
        found.append(f"{cost.all_cpu_ms:.1f} CPU ms a case, bar {MOST_CPU_MS:.1f}")
    for table in cost.thirds[0].most_dead_rows:
        if not is_flat(cost.thirds, table):
            counts = ", ".join(f"{third.most_dead_rows[table]:,}" for third in cost.thirds)
            found.append(f"dead rows of {table} rise: at most {counts} in the thirds of the run")
    if verdict.violations or verdict.lost or verdict.double or verdict.failed or verdict.unanswered:
        found.append(
            f"{verdict.lost} cases lost, {verdict.double} doubled, {verdict.failed} failed, {verdict.unanswered} unanswered; "
            f"{len(verdict.violations)} invariants broken"
        )
    if outcome.sent_again or outcome.exits or verdict.reexecuted:
        found.append(
            f"without a fault {outcome.sent_again} doorbells were sent again, {verdict.reexecuted} claims made again, "
            f"{outcome.exits} workers ended"
        )
    return found
