"""`secondread problems`: every code that a caller may meet, and what to do about it."""

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.table import Table

import pipeline.stages.deliver
import pipeline.stages.infer
import pipeline.stages.preprocess  # noqa: F401 - the stages bring every error that a case can fail with
from pipeline.errors import RejectedInput, SecondreadError
from workers.cli.terminal import complain, results
from workers.gateway.problems import REFUSALS

AT_THE_DOOR = ("pipeline.persistence.ledger.admission", "pipeline.callbacks")
"""Where errors are raised before there is a case."""


def problems(
    code: Annotated[str | None, typer.Argument(help="Explain this code alone.")] = None,
    *,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print docs/problems.md.")] = False,
) -> None:
    """Show the closed lists of codes: refusals of the door, and reasons for which a case fails."""
    if markdown:
        typer.echo(problems_markdown(), nl=False)
        return
    rows = [row for row in (*_door_rows(), *_case_rows()) if code in (None, row[0])]
    if not rows:
        complain(f"No such code: {code}.", "`secondread problems` lists all.")
        raise typer.Exit(1)
    table = Table("Code", "Where", "What it means", "What to do")
    for row in rows:
        table.add_row(*row)
    results().print(table)


def problems_markdown() -> str:
    """Write both lists as a page."""
    lines = [
        "# Problems",
        "",
        "Made by `secondread problems --markdown`. Codes are stable; texts may be worded better.",
        "",
        "## What the HTTP door refuses",
        "",
        "Every refusal is `application/problem+json` (RFC 9457) with one of these codes.",
        "",
        "| code | status | what it means | what to do | retry |",
        "|---|---|---|---|---|",
    ]
    for code, refusal in REFUSALS.items():
        retry = "no" if refusal.retry_after_s is None else f"after {refusal.retry_after_s} s"
        lines.append(f"| `{code}` | {refusal.status} | {refusal.title} | {refusal.advice} | {retry} |")
    lines += ["", "## Why a case fails", "", "In `failure.code` of the case, and as `reason` of an image that could not be read.", ""]
    lines += ["| code | what it means | what to do |", "|---|---|---|"]
    lines += [f"| `{code}` | {title} | {advice} |" for code, _, title, advice in _case_rows()]
    return "\n".join(lines) + "\n"


def _door_rows() -> Iterator[tuple[str, str, str, str]]:
    for code, refusal in REFUSALS.items():
        yield code, f"HTTP {refusal.status}", refusal.title, refusal.advice


def _case_rows() -> list[tuple[str, str, str, str]]:
    kinds = (kind for kind in _below(RejectedInput) if "code" in vars(kind) and not kind.__module__.startswith(AT_THE_DOOR))
    found = {kind.code: (kind.code, "case", kind.title, kind.advice) for kind in kinds}
    return [found[code] for code in sorted(found)]


def _below(kind: type[SecondreadError]) -> Iterator[type[SecondreadError]]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)
