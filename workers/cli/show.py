"""`secondread show`: one case from all sides."""

from typing import Annotated

import typer
from rich.text import Text

from schemas.api import CaseView
from workers.cli.door import KeyOption, UrlOption, at_the_door
from workers.cli.terminal import results
from workers.cli.view.findings import findings_table, images_table, outcome_of, outcome_text, report_of, sentence_of
from workers.cli.view.timeline import deliveries_table, moment_text, stages_table


def show(case_id: Annotated[str, typer.Argument(metavar="ID")], *, url: UrlOption = None, key: KeyOption = None) -> None:
    """Show a case: findings, where the time went, callbacks."""
    console = results()
    with at_the_door(url, key) as client:
        case, timeline = client.case(case_id), client.timeline(case_id)
    console.print(_heading(case))
    report = report_of(case)
    if report is not None:
        if any(image.findings for image in report.images):
            console.print(findings_table(report))
        console.print(images_table(report))
    console.print(stages_table(timeline))
    if timeline.deliveries:
        console.print(deliveries_table(timeline.deliveries))
    if report is not None:
        algorithm = f"{report.algorithm.name} {report.algorithm.version}" if report.algorithm else "Not yet read by a model"
        console.print(f"{algorithm}, version {report.version} of the result, {report.kind}")
        console.print(report.notice, style="italic")


def _heading(case: CaseView) -> Text:
    text = Text(f"{case.case_id}  ", style="bold")
    text.append_text(outcome_text(outcome_of(case)))
    advice = f" {case.failure.advice}" if case.failure else ""
    text.append(f"\n{sentence_of(case)}{advice}\n", style="not bold")
    facts = [
        f"status {case.status}",
        f"lane {case.lane}",
        f"accepted {moment_text(case.accepted_at)}",
        f"due {moment_text(case.deadline_at)}",
    ]
    if case.client_reference:
        facts.append(f"reference {case.client_reference}")
    return text.append(", ".join(facts), style="not bold")
