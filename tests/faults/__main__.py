"""`make faults`: kill, freeze, empty and double what can be, and print what became of the cases.

Ends with 1 where a bar falls short. `--cases` and `--kills` are A1's; the other rows take their share.
"""

import argparse
import os
import shlex
import sys
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.faults.arena import Row, Tell
from tests.faults.rows import planned_rows
from tests.faults.servers import running_servers
from tests.faults.table import cells, show, write

CASES = 20_000
KILLS = 40
SAY_EVERY_S = 20.0
"""How often a line tells of progress where there is no terminal."""


def _teller(progress: Progress, console: Console, name: str, cases: int) -> Tell:
    task = progress.add_task(name, total=cases, doing="")
    said_at = time.monotonic()

    def tell(completed: int, doing: str) -> None:
        nonlocal said_at
        progress.update(task, completed=completed, doing=doing)
        if not console.is_terminal and time.monotonic() - said_at > SAY_EVERY_S:
            said_at = time.monotonic()
            console.print(f"{name}: {completed} of {cases} answered; {doing}")

    return tell


def main() -> int:
    """Run the rows that were asked for."""
    known = planned_rows(CASES, KILLS)
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--cases", type=int, default=CASES, help="cases of A1")
    parser.add_argument("--kills", type=int, default=KILLS, help="kills of A1 and of A2; PostgreSQL and the control die a quarter as often")
    parser.add_argument("--only", nargs="+", choices=sorted(known), metavar="ROW", help=f"some of {', '.join(known)}")
    parser.add_argument("--long", action="store_true", help=f"also {', '.join(name for name, row in known.items() if row.is_long)}")
    asked = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 130)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[doing]}"))
    chosen = {
        name: row
        for name, row in planned_rows(asked.cases, asked.kills).items()
        if (name in asked.only if asked.only else asked.long or not row.is_long)
    }
    rows: list[Row] = []
    with running_servers() as servers, Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        for name, planned in chosen.items():
            row = planned.story(servers, _teller(progress, console, name, planned.cases))
            rows.append(row)
            console.print(f"{' · '.join(cells(row))} · in {row.seconds:.0f} s")
            console.print(f"   sent again: {row.republished or 'nothing'}; workers that ended by themselves: {row.exits}")
    show(rows, console)
    if not asked.only:
        command = f"python -m tests.faults {shlex.join(sys.argv[1:])}" if sys.argv[1:] else "make faults"
        write(rows, command=command, cores=os.cpu_count() or 1, says=[planned.says for planned in chosen.values() if planned.says])
    return 1 if any(row.shortfalls for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
