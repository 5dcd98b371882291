"""`secondread list`: cases, newest first."""

from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from schemas.api import CaseView, LaneName
from schemas.webhook import CaseStatus
from workers.cli.door import KeyOption, UrlOption, at_the_door
from workers.cli.terminal import results
from workers.cli.view.findings import outcome_text
from workers.cli.view.timeline import moment_text


def list_cases(  # noqa: PLR0913 - the parameters are the command's options
    *,
    status: Annotated[CaseStatus | None, typer.Option(help="Only cases that stand here.")] = None,
    lane: Annotated[LaneName | None, typer.Option(help="Only cases of this lane.")] = None,
    last_hours: Annotated[float | None, typer.Option(min=0, help="Only cases accepted in so many hours.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Show so many.")] = 20,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """List cases, newest first."""
    since = datetime.now(UTC) - timedelta(hours=last_hours) if last_hours is not None else None
    with at_the_door(url, key) as client:
        cases = list(islice(client.cases(status=status, lane=lane, since=since), limit))
    if not cases:
        results().print("No such case.")
        return
    results().print(cases_table(cases))


def cases_table(cases: list[CaseView]) -> Table:
    """The cases as a table."""
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    table.add_column("Case", no_wrap=True)
    table.add_column("Status", min_width=9)
    table.add_column("Lane")
    table.add_column("Accepted", no_wrap=True)
    table.add_column("Took", justify="right")
    table.add_column("Yours", overflow="fold")
    for case in cases:
        took = f"{(case.ended_at - case.accepted_at).total_seconds():.2f} s" if case.ended_at else ""
        status = f"{case.status}, preliminary answer" if case.is_preliminary else case.status
        table.add_row(case.case_id, outcome_text(status), case.lane, moment_text(case.accepted_at), took, Text(case.client_reference or ""))
    return table
