"""Where the command writes: results to standard output, progress and complaints to standard error."""

import sys

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

PLAIN_WIDTH = 100
"""Columns where nobody looks at a terminal: a log, a pipe. Colours are left out there, too."""


def results() -> Console:
    """Standard output."""
    return Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)


def remarks() -> Console:
    """Standard error."""
    return Console(stderr=True, width=None if sys.stderr.isatty() else PLAIN_WIDTH, highlight=False)


def complain(sentence: str, advice: str = "") -> None:
    """Say what went wrong and what to do."""
    remarks().print(f"[red]{escape(sentence)}[/red]{' ' if advice else ''}{escape(advice)}", soft_wrap=True)


def progress_bar() -> Progress:
    """A bar that counts; it vanishes when it is done, and is not drawn where nobody looks."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=remarks(),
        transient=True,
    )
