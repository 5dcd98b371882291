"""`secondread submit`: send DICOM files, wait, show what was found."""

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from schemas.api import LaneName
from workers.cli.door import KeyOption, UrlOption, at_the_door
from workers.cli.files import find_files, group_files
from workers.cli.keeping import keep_result
from workers.cli.sending import Sent, send_all
from workers.cli.terminal import complain, progress_bar, results
from workers.cli.view.findings import outcome_of, outcome_text, reading_cells, report_of, sentence_of
from workers.client import Client, Wishes


def submit(  # noqa: PLR0913 - the parameters are the command's options
    paths: Annotated[list[Path], typer.Argument(exists=True, metavar="PATH...", help="DICOM files, or folders of them.")],
    *,
    wait: Annotated[bool, typer.Option(help="Wait for the answers and show them.")] = True,
    lane: Annotated[LaneName, typer.Option(help="Who goes first.")] = "routine",
    deadline: Annotated[float | None, typer.Option(min=0.1, help="Seconds until the answer is due; at most the door's limit.")] = None,
    out: Annotated[Path | None, typer.Option(file_okay=False, help="Save overlays and reports in this folder.")] = None,
    study_per_case: Annotated[
        bool | None, typer.Option("--study-per-case/--one-case", help="One case of each study, or of all files. By default of each file.")
    ] = None,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Send DICOM files and show the findings.

    Exit code 0: every case has an answer (or, with --no-wait, was accepted). 1: one was refused, failed, or could not be assessed.
    """
    if out is not None and not wait:
        raise typer.BadParameter("--out saves answers, and --no-wait does not wait for any")
    groups = group_files(find_files(paths), is_study_per_case=study_per_case)
    if not groups:
        complain("None of the folders holds a DICOM file.")
        raise typer.Exit(2)
    wishes: Wishes = {"lane": lane} if deadline is None else {"lane": lane, "deadline_s": deadline}
    with at_the_door(url, key) as client:
        with progress_bar() as progress:
            task = progress.add_task("Reading" if wait else "Sending", total=len(groups))
            sent = send_all(client, groups, is_waiting=wait, wishes=wishes, on_done=lambda _: progress.advance(task))
        kept_count = _keep(client, sent, out) if out is not None else 0
    _show(sent, is_waiting=wait)
    if out is not None:
        results().print(
            f"Saved {kept_count} {'report' if kept_count == 1 else 'reports'}, with overlays, in {out}", soft_wrap=True, markup=False
        )
    if any(each.is_lost or (wait and not each.has_answer) for each in sent):
        raise typer.Exit(1)


def _keep(client: Client, sent: list[Sent], out: Path) -> int:
    answered = [(each.name, each.case) for each in sent if each.case and each.case.result]
    for name, case in answered:
        keep_result(client, case, out, name=name)
    return len(answered)


def _show(sent: list[Sent], *, is_waiting: bool) -> None:
    console = results()
    console.print(_answers(sent) if is_waiting else _accepted(sent))
    for advice in _advices(sent):
        console.print(advice, markup=False)
    notice = next((report.notice for each in sent if each.case and (report := report_of(each.case))), None)
    if notice:
        console.print(notice, style="italic")


def _answers(sent: list[Sent]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    table.add_column("File", overflow="fold", max_width=24)
    table.add_column("Answer", overflow="fold", ratio=1)
    table.add_column("Size", no_wrap=True)
    table.add_column("Prob.", no_wrap=True)
    table.add_column("Scores", no_wrap=True)
    table.add_column("Time", justify="right", no_wrap=True)
    for each in sent:
        answer = outcome_text(outcome_of(each.case) if each.case else "refused")
        answer.append(f"\n{sentence_of(each.case) if each.case else each.refusal}", style="not bold default")
        cells = reading_cells(report_of(each.case) if each.case else None)
        table.add_row(Text(each.name), answer, *cells, f"{each.took_s:.2f} s")
    return table


def _advices(sent: list[Sent]) -> list[str]:
    """What can be done about what failed, each once."""
    failures = [each.case.failure for each in sent if each.case and each.case.failure]
    said = {failure.code: f"{failure.title}: {failure.advice}" for failure in failures}
    return list(said.values()) + list(dict.fromkeys(each.advice for each in sent if each.advice))


def _accepted(sent: list[Sent]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    table.add_column("File", overflow="fold", max_width=30)
    table.add_column("Case", no_wrap=True)
    table.add_column("Status", overflow="fold")
    for each in sent:
        case_id, status = (each.case.case_id, each.case.status) if each.case else ("", f"refused: {each.refusal}")
        table.add_row(Text(each.name), case_id, Text(status))
    return table
