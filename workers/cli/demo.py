"""`secondread demo`: the whole product in seconds, with answers that are checked."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pipeline.errors import SecondreadError
from schemas.api import TimelineView
from workers.access import Access
from workers.cli.demonstration.judgement import Judged, answers_table, times_table
from workers.cli.demonstration.receiver import CallbackReceiver
from workers.cli.demonstration.server import OwnDeployment, demo_settings
from workers.cli.demonstration.study import DemoStudy
from workers.cli.keeping import MAP, has_picture, keep_result
from workers.cli.lazy import load
from workers.cli.sending import Sent, send_all
from workers.cli.terminal import complain, progress_bar, remarks, results
from workers.cli.view.findings import report_of
from workers.client import Client, ClientError
from workers.settings import Settings

CALLBACK_LIMIT_S = 10.0
LOOK_EVERY_S = 0.05


def demo(*, keep: Annotated[Path | None, typer.Option(file_okay=False, help="Keep studies, reports and overlays here.")] = None) -> None:
    """Start everything, read four made-up studies and a real CT slice, check answers and callbacks, and stop.

    Exit code 0: every lesion was found where it is, nothing was found where there is none, the CT was not read, and every
    callback was signed.
    """
    began = time.monotonic()
    settings = demo_settings(Settings())
    folder = (keep or settings.state_dir / "results").absolute()
    try:
        judged = _run(settings, folder, began)
    except SecondreadError as error:
        complain(f"{error.title}.\n{error}", f"\n{error.advice}")
        raise typer.Exit(1) from error
    except ClientError as error:
        complain(f"{error}.", f"The logs are in {settings.state_dir}.")
        raise typer.Exit(1) from error
    _show(judged, took_s=time.monotonic() - began)
    if any(each.faults for each in judged):
        raise typer.Exit(1)


def _run(settings: Settings, folder: Path, began: float) -> list[Judged]:
    console = remarks()
    with console.status("") as status, CallbackReceiver() as receiver:
        with OwnDeployment(settings) as own:
            status.update("making studies")
            studies: list[DemoStudy] = load("workers.cli.demonstration.studies:make_studies")(folder / "studies")
            access = own.wait_until_up(lambda line: status.update(f"starting: {line}"))
            _say(console, f"Up at {access.url}", began)
            status.stop()
            judged = _read(access, studies, receiver, folder)
            _say(console, f"{len(studies)} studies read", began)
            status.start()
            status.update("draining")
        _say(console, "Drained and stopped", began)
    return judged


def _say(console: Console, sentence: str, began: float) -> None:
    console.print(f"{time.monotonic() - began:5.1f} s  {sentence}", markup=False)


def _read(access: Access, studies: list[DemoStudy], receiver: CallbackReceiver, folder: Path) -> list[Judged]:
    """Submit all together, wait for answers and callbacks, compare with the truth."""
    with Client(access.url, access.api_key) as client, progress_bar() as progress:
        endpoint = client.add_endpoint(receiver.url)
        task = progress.add_task("reading", total=len(studies))
        sent = send_all(
            client,
            [(study.file,) for study in studies],
            is_waiting=True,
            wishes={"webhook_endpoint_id": endpoint.webhook_endpoint_id},
            on_done=lambda _: progress.advance(task),
        )
        progress.update(task, description="waiting for callbacks")
        case_ids = {each.case.case_id for each in sent if each.case}
        callbacks = receiver.verified(endpoint.secret or "", case_ids, until_s=CALLBACK_LIMIT_S)
        judged = [_judge(client, study, each, callbacks, folder) for study, each in zip(studies, sent, strict=True)]
        client.remove_endpoint(endpoint.webhook_endpoint_id)
        return judged


def _judge(client: Client, study: DemoStudy, sent: Sent, callbacks: dict[str, str], folder: Path) -> Judged:
    report = report_of(sent.case) if sent.case else None
    if sent.case is None or report is None:
        failure = sent.case.failure if sent.case else None
        return Judged(study, None, refusal=failure.title if failure else sent.refusal)
    case_id = sent.case.case_id
    measure = study.overlap if has_picture(report.images[0], MAP) else None
    return Judged(
        study,
        report,
        overlap=measure(client.probability(case_id)) if measure else None,
        callback=callbacks.get(case_id, "did not come"),
        stages=_recorded_timeline(client, case_id).stages,
        folder=keep_result(client, sent.case, folder, name=sent.name),
    )


def _recorded_timeline(client: Client, case_id: str) -> TimelineView:
    """The timeline once the delivery is in it: we have the callback a moment before the ledger knows."""
    give_up_at = time.monotonic() + CALLBACK_LIMIT_S / 5
    while True:
        timeline = client.timeline(case_id)
        is_recorded = any(each.state == "delivered" for each in timeline.deliveries)
        if is_recorded or time.monotonic() > give_up_at:
            return timeline
        time.sleep(LOOK_EVERY_S)


def _show(judged: list[Judged], *, took_s: float) -> None:
    console = results()
    console.print(answers_table(judged))
    console.print(times_table(judged))
    for each in judged:
        for file in sorted(each.folder.iterdir()) if each.folder else ():
            console.print(f"{each.study.name}: {file}", markup=False, soft_wrap=True)
    good_count = sum(not each.faults for each in judged)
    console.print(f"\n{good_count} of {len(judged)} studies are as they must be. Everything took {took_s:.1f} s.")
    if judged and judged[0].report:
        console.print(judged[0].report.notice, style="italic")
