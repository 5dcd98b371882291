"""`make faults`: kill, freeze, empty and double what can be, and print what became of the cases.

Ends with 1 where a bar falls short. `--cases` and `--kills` are A1's; the other rows take their share.
"""

import argparse
import os
import shlex
import sys
import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.faults.arena import Row, Tell
from tests.faults.control import control
from tests.faults.doorbells import emptied_valkey, frozen_worker, quiet_backlog, tripled_doorbells
from tests.faults.kills import killed_postgres, killed_workers
from tests.faults.servers import Servers, running_servers
from tests.faults.table import cells, show, write

CASES = 20_000
KILLS = 40
SAY_EVERY_S = 20.0
"""How often a line tells of progress where there is no terminal."""

Story = Callable[[Servers, Tell], Row]


def stories(cases: int, kills: int) -> dict[str, tuple[int, Story]]:
    """Every row by its name: how many cases it takes, and its story."""
    fifth, few = max(400, cases // 5), max(1, kills // 4)
    return {
        "A1": (cases, lambda servers, tell: killed_workers(servers, tell, cases=cases, kills=kills)),
        "A2": (2 * fifth, lambda servers, tell: killed_workers(servers, tell, cases=2 * fifth, kills=kills, valkey_too=True)),
        "A3": (few * 200, lambda servers, tell: killed_postgres(servers, tell, kills=few)),
        "A4": (cases, lambda servers, tell: control(servers, tell, cases=cases, kills=few)),
        "A6": (fifth // 2, lambda servers, tell: tripled_doorbells(servers, tell, cases=fifth // 2)),
        "A7": (8, frozen_worker),
        "A8": (fifth, lambda servers, tell: emptied_valkey(servers, tell, cases=fifth, times=3)),
        "A9": (fifth, lambda servers, tell: quiet_backlog(servers, tell, cases=fifth)),
    }


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
    known = stories(CASES, KILLS)
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--cases", type=int, default=CASES, help="cases of A1")
    parser.add_argument("--kills", type=int, default=KILLS, help="kills of A1 and of A2; PostgreSQL and the control die a quarter as often")
    parser.add_argument("--only", nargs="+", choices=sorted(known), metavar="ROW", help=f"some of {', '.join(known)}")
    asked = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 130)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[doing]}"))
    rows: list[Row] = []
    with running_servers() as servers, Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        for name, (cases, story) in stories(asked.cases, asked.kills).items():
            if asked.only and name not in asked.only:
                continue
            row = story(servers, _teller(progress, console, name, cases))
            rows.append(row)
            console.print(f"{' · '.join(cells(row))} · in {row.seconds:.0f} s")
            console.print(f"   sent again: {row.republished or 'nothing'}; workers that ended by themselves: {row.exits}")
    show(rows, console)
    if not asked.only:
        is_default = (asked.cases, asked.kills) == (CASES, KILLS)
        command = "make faults" if is_default else f"python -m tests.faults {shlex.join(sys.argv[1:])}"
        write(rows, command=command, cores=os.cpu_count() or 1)
    return 1 if any(row.shortfalls for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
