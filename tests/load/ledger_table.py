"""The tables of `make ledger`, on the terminal and in docs/ledger-cost.md."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.load.ledger_figures import CASES_PER_S, LATE_MS, MOST_CPU_MS, Outcome, is_flat
from tests.load.ledger_readings import Sample

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ledger-cost.md"
MARKS = ("<!-- figures -->", "<!-- end of figures -->")
"""Between these lines of the page stand the figures of a run."""
KIB = 1024

Rows = list[tuple[str, ...]]


def progress_line(before: Sample, now: Sample) -> str:
    """What has happened between two samples."""
    rate = (now.completed - before.completed) / (now.at - before.at)
    dead = ", ".join(f"{name} {table.dead_rows:,}" for name, table in now.tables.items() if table.dead_rows)
    return f"{rate:.0f} cases/s; dead rows: {dead or 'none'}; cases {now.tables['cases'].bytes / KIB / KIB:.0f} MiB"


def processes(outcome: Outcome) -> Rows:
    """Where the CPU of a case goes, most first."""
    cost = outcome.cost
    total = cost.all_cpu_ms
    parts = sorted(cost.cpu_ms.items(), key=lambda part: -part[1])
    rows: Rows = []
    for name, cpu_ms in parts:
        rows.append((name, f"{cpu_ms:.2f}", f"{100 * cpu_ms / total:.0f} %"))
        if name in cost.loop_ms:
            rows.append(("  of it Celery's loop", f"{cost.loop_ms[name]:.2f}", ""))
        if name == "postgres":
            backends = sorted(cost.backend_ms.items(), key=lambda part: -part[1])
            rest = cpu_ms - sum(cost.backend_ms.values())
            rows += [(f"  for {each}", f"{ms:.2f}", "") for each, ms in backends] + [("  its own work", f"{rest:.2f}", "")]
    return [*rows, ("all", f"{total:.2f}", "100 %")]


def growth(outcome: Outcome) -> Rows:
    """What becomes of the tables while the run goes on."""
    rows: Rows = []
    for name, third in zip(("first", "second", "last"), outcome.cost.thirds, strict=True):
        dead = [f"{third.most_dead_rows[table]:,}" for table in third.most_dead_rows]
        sizes = [f"{third.bytes_a_case[table]:.0f}" for table in third.bytes_a_case]
        rows.append((f"{name} third", f"{third.cases_per_s:.0f}", " / ".join(dead), str(third.vacuums), " / ".join(sizes)))
    return rows


def summary(outcome: Outcome) -> Rows:
    """The figures that are asked for, each with its bar where it has one."""
    cost, alone, loaded, verdict = outcome.cost, outcome.alone, outcome.loaded, outcome.verdict
    bound = max(cost.cpu_ms, key=lambda name: cost.cpu_ms[name])
    busy = cost.all_cpu_ms * cost.cases_per_s / 1000
    flat = all(is_flat(cost.thirds, table) for table in cost.thirds[0].most_dead_rows)
    wrong = verdict.lost + verdict.double + verdict.failed + verdict.unanswered
    return [
        (f"cases/s through all stages, {outcome.in_flight} in flight", f"{cost.cases_per_s:.0f}", f">= {CASES_PER_S:.0f}"),
        ("CPU ms a case, all processes", f"{cost.all_cpu_ms:.1f}", f"<= {MOST_CPU_MS:.1f}"),
        ("dead rows over the second half", "flat" if flat else "rising", "flat"),
        (f"lost, doubled, failed or unanswered, of {verdict.cases:,}", f"{wrong}", "0"),
        ("added to a case alone, P50 / P95", f"{alone.p50_ms:.1f} / {alone.p95_ms:.1f} ms", ""),
        ("of it until it is committed (202), P50", f"{alone.accepted_p50_ms:.1f} ms", ""),
        ("under full load, P50 / P95", f"{loaded.p50_ms:.0f} / {loaded.p95_ms:.0f} ms", ""),
        ("SQL statements = commits, a case", f"{cost.commits:.2f}", ""),
        ("waits for the disk, a case", f"{cost.wal_fsyncs:.2f}", ""),
        ("bytes of log, a case (whole pages)", f"{cost.wal_bytes:,.0f} ({cost.wal_page_images:.2f})", ""),
        ("updates of cases that touch no index", f"{100 * cost.hot_share:.0f} %", ""),
        ("commands to Valkey, a case", f"{cost.redis_commands:.1f}", ""),
        (f"cores busy with it, of {outcome.cores}; most of it", f"{busy:.2f}; {bound}", ""),
        ("cores busy with something else", f"{cost.cores_of_others:.2f}", ""),
    ]


def _tables(outcome: Outcome) -> list[tuple[str, tuple[str, ...], Rows]]:
    names = " / ".join(outcome.cost.thirds[0].most_dead_rows)
    return [
        ("Where the CPU of a case goes", ("process", "CPU ms a case", "share"), processes(outcome)),
        (f"Growth: {names}", ("part of the run", "cases/s", "most dead rows", "vacuums", "bytes a case"), growth(outcome)),
        (f"Cost of the ledger: {outcome.cost.seconds:.0f} s under full load", ("figure", "measured", "bar"), summary(outcome)),
    ]


def show(outcome: Outcome, short: Sequence[str], console: Console) -> None:
    """Print what falls short, and the tables."""
    for shortfall in short:
        console.print(shortfall, style="bold red")
    if outcome.alone.late_p99_ms > LATE_MS:
        console.print(f"the load itself came {outcome.alone.late_p99_ms:.0f} ms late (P99): the waits of cases alone are worth little")
    for title, headings, rows in _tables(outcome):
        table = Table(title=title, title_justify="left")
        for heading in headings:
            table.add_column(heading, justify="left" if heading == headings[0] else "right")
        for row in rows:
            table.add_row(*row)
        console.print(table)


def write_page(outcome: Outcome, short: Sequence[str], command: str) -> None:
    """Put the figures between the marks of the page."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    said = f"**Falls short**: {'; '.join(short)}." if short else "Every bar is met."
    head = f"`{command}`, {datetime.now(UTC):%Y-%m-%d}, {outcome.cores} cores. {said}\n"
    tables = "\n".join(_as_markdown(*table) for table in reversed(_tables(outcome)))
    PAGE.write_text(f"{before}{MARKS[0]}\n{head}\n{tables}{MARKS[1]}{after}", encoding="utf-8")


def _as_markdown(title: str, headings: tuple[str, ...], rows: Rows) -> str:
    lines = [f"**{title}**", "", f"| {' | '.join(headings)} |", f"|---|{'---:|' * (len(headings) - 1)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"
