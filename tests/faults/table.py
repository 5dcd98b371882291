"""The table of faults, on the terminal, in build/faults.json and in docs/faults.md."""

import json
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.faults.arena import Row

ROOT = Path(__file__).resolve().parents[2]
HEADINGS = ("fault", "times", "cases", "lost", "double", "late", "unanswered", "quarantined", "re-executed", "recovered in")

_INTRODUCTION = """# Faults

`{command}` starts a real Valkey (which keeps nothing on disk), a real PostgreSQL and real worker processes of the three pools with the
product's own claims, leases, doorbells, group commits and sweeper. Only the stages are stubs, and so is the loop that feeds the model: each
carries a digest of its input, so that a result that belongs to another image would show. A load process submits as the HTTP door does
and writes down what it saw; a checker compares that with all rows of the ledger when everything is quiet.

{date}, commit {commit}, {cores} cores, {minutes:.0f} minutes. {verdict}

"""
_EXPLANATION = """
- **lost**: promised (the submit returned), and at the end there is no row or nobody will ever end it. **double**: more than one visible
  effect. **unanswered**: promised, with neither a result nor a coded failure at the end.
- **late**: ended more than 30 s after acceptance. The guard, which answers such a case in time, does not run here; the load is as much
  as the machine takes, and waiting behind the backlog counts.
- **quarantined**: failed with that code because two inference workers in succession died with the case aboard, the second time with no
  other. That is what a poisonous case looks like (two strikes), and where everything is killed every few seconds it happens to an innocent
  one: at most one for twenty kills.
- **re-executed**: claims beyond a case's first in a pool: work that died with its worker and was done again.
- **recovered in**, the longest: A1, A2 from a kill until a case that was in hand is claimed anew; A2, A3 from the server's kill until a
  case accepted after it has its result (restart included); A7 from the freeze until another worker has answered; A8 from FLUSHALL until
  every waiting case was rung again or had moved on.
- **A4** is the control: plain Celery with late acknowledgement and no ledger, judged by the same checker, which must find faults there.
- **Elsewhere**, in the ordinary tests: Redis killed with its append-only file, cut off from everybody, frozen for ten seconds, or gone
  (`tests/acceptance/test_broker.py`); pools that are stopped at work (`test_drains.py`); what the transport alone brings back, and when
  (`tests/integration/transport/`).
- **Not tried**: a failover by Sentinel or a cluster. secondread knows one address of Redis; what takes over behind it looks like A2 or A8.
"""


def cells(row: Row) -> tuple[str, ...]:
    """One line, as text."""
    verdict = row.verdict
    bad = (verdict.lost, verdict.double, verdict.late, verdict.unanswered, verdict.quarantined)
    numbers = (row.times, verdict.cases, *bad, verdict.reexecuted)
    recovered = "-" if row.recovered_s is None else f"{row.recovered_s:.1f} s"
    return (f"{row.fault} {row.what}", *(f"{number:,}" for number in numbers), recovered)


def show(rows: Sequence[Row], console: Console) -> None:
    """Print the table, and below it what fell short."""
    table = Table()
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "fault" else "right")
    for row in rows:
        table.add_row(*cells(row), style="red" if row.shortfalls else None)
    for row in rows:
        for shortfall in row.shortfalls:
            console.print(f"{row.fault}: {shortfall}", style="bold red")
    console.print(table)


def write(rows: Sequence[Row], *, command: str, cores: int, says: Sequence[str] = ()) -> None:
    """Write the same to build/faults.json and docs/faults.md; `says` are rows' own sentences."""
    at, commit = datetime.now(UTC), _commit()
    facts = {"at": at.isoformat(), "commit": commit, "command": command, "rows": [_as_json(row) for row in rows]}
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build" / "faults.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    short = [f"{row.fault}: {shortfall}" for row in rows for shortfall in row.shortfalls]
    page = _INTRODUCTION.format(
        command=command,
        date=f"{at:%Y-%m-%d}",
        commit=commit,
        cores=cores,
        minutes=max(1.0, sum(row.seconds for row in rows) / 60),
        verdict=f"**Falls short**: {'; '.join(short)}." if short else "Every bar is met.",
    )
    page += f"| {' | '.join(HEADINGS)} |\n|---|{'---:|' * (len(HEADINGS) - 1)}\n"
    page += "".join(f"| {' | '.join(cells(row))} |\n" for row in rows)
    (ROOT / "docs" / "faults.md").write_text(page + _EXPLANATION + "".join(f"- {each}\n" for each in says), encoding="utf-8")


def _as_json(row: Row) -> dict[str, Any]:
    facts = asdict(row)
    violations = facts["verdict"].pop("violations")
    facts["violations"] = Counter(each["invariant"] for each in violations)
    facts["examples"] = [f"{each['invariant']} {each['case_id']}: {each['what']}" for each in violations[:5]]
    return facts


def _commit() -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    return (git("rev-parse", "--short", "HEAD") or "unknown") + (" with changes" if git("status", "--porcelain") else "")
