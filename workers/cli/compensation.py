"""`secondread compensation`: cases that were put off, and what a human decides about them."""

from typing import Annotated, Literal

import typer
from rich import box
from rich.table import Table

from schemas.api import PutOffView
from workers.cli.door import KeyOption, UrlOption, at_the_door
from workers.cli.terminal import complain, results
from workers.cli.view.timeline import moment_text

Act = Literal["list", "retry", "close"]


def compensation(
    act: Annotated[Act, typer.Argument(help="list; or retry or close a case.")] = "list",
    case_id: Annotated[str | None, typer.Argument(metavar="ID")] = None,
    *,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """List the cases that were put off, try one again, or close it without a reading."""
    if act != "list" and case_id is None:
        complain(f"Which case? secondread compensation {act} ID", "secondread compensation list shows them.")
        raise typer.Exit(2)
    with at_the_door(url, key) as client:
        if act == "list" or case_id is None:
            cases = client.put_off_cases()
            results().print(put_off_table(cases) if cases else "No case is put off.")
            return
        case = client.retry_put_off(case_id) if act == "retry" else client.close_put_off(case_id)
    results().print(f"{case.case_id} is {case.status}.")


def put_off_table(cases: tuple[PutOffView, ...]) -> Table:
    """The compensation queue as a table."""
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for heading in ("Case", "Status", "Because", "Tries", "Accepted", "Next"):
        table.add_column(heading, no_wrap=heading == "Case", justify="right" if heading == "Tries" else "left")
    for case in cases:
        following = "waits for a human" if case.worklist_at else moment_text(case.due_at)
        table.add_row(case.case_id, case.status, case.reason or "", str(case.attempts), moment_text(case.accepted_at), following)
    return table
