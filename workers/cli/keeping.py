"""Saving a case's report and pictures in a folder of the user's."""

from pathlib import Path, PurePosixPath

from schemas.api import CaseView
from schemas.report import ImageReading
from workers.cli.view.findings import report_of
from workers.client import Client

OVERLAY, MAP = "overlay.png", "probability.png"


def has_picture(image: ImageReading, name: str) -> bool:
    """Whether the door has this picture of an image: it has none of an image that was not read."""
    return any(PurePosixPath(each).name == name for each in image.artefacts)


def keep_result(client: Client, case: CaseView, out: Path, *, name: str) -> Path:
    """Write `report.json` and every image's overlay into a folder of their own in `out`, and give that folder.

    It is called after the file that was sent and the end of the case's id, so no two meet.
    """
    folder = out / f"{Path(name).stem}-{case.case_id[-8:]}"
    folder.mkdir(parents=True, exist_ok=True)
    report = report_of(case)
    if report is None:
        return folder
    (folder / "report.json").write_text(report.model_dump_json(indent=2) + "\n")
    for number, image in enumerate(report.images, start=1):
        if has_picture(image, OVERLAY):
            (folder / f"overlay-{number}.png").write_bytes(client.overlay(case.case_id, image=number, version=report.version))
    return folder
