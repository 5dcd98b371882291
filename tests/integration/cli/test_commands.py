import json
import re
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import Result

from pipeline.dicom.phantom import PhantomStudy, phantom_instance
from pipeline.imaging.phantom import phantom
from workers.client import Client, ProblemError

pytestmark = pytest.mark.services
Command = Callable[..., Result]


def test_a_file_is_read_and_its_finding_shown(secondread: Command, lesion_file: Path) -> None:
    shown = secondread("submit", str(lesion_file))
    assert shown.exit_code == 0, shown.output
    assert all(text in shown.stdout for text in ("lesion.dcm", "findings", "19.8 x 18.1 mm", "presence", "malignancy"))
    assert "Not for clinical use" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 100


def test_a_file_that_is_no_dicom_ends_with_1_and_what_to_do(secondread: Command, tmp_path: Path, lesion_file: Path) -> None:
    bad = tmp_path / "bad.dcm"
    bad.write_bytes(b"hello")
    shown = secondread("submit", str(bad), str(lesion_file))
    assert shown.exit_code == 1
    assert "The file is not a DICOM instance: Submit the DICOM Part 10 file itself" in shown.stdout
    assert "1 finding in 1 of 1 images" in " ".join(shown.stdout.split())


def test_reports_and_overlays_are_saved(secondread: Command, lesion_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert secondread("submit", str(lesion_file), "--out", str(out)).exit_code == 0
    (folder,) = out.iterdir()
    report = json.loads((folder / "report.json").read_text())
    with Image.open(folder / "overlay-1.png") as overlay:
        assert overlay.format == "PNG"
        assert overlay.height >= 400
    assert report["case_id"].endswith(folder.name.removeprefix("lesion-"))
    assert report["outcome"] == "findings"


def test_without_waiting_the_case_is_named_and_can_be_shown_later(secondread: Command, client: Client, lesion_file: Path) -> None:
    accepted = secondread("submit", str(lesion_file), "--no-wait", "--lane", "urgent")
    assert accepted.exit_code == 0
    (case_id,) = re.findall(r"case_[0-9a-f]{32}", accepted.stdout)
    client.wait(case_id, until_s=30)
    shown = secondread("show", case_id)
    assert shown.exit_code == 0
    assert all(text in shown.stdout for text in (case_id, "lane urgent", "Mass", "Breast L", "preprocess", "postprocess", "█"))
    assert max(map(len, shown.stdout.splitlines())) <= 100


def test_files_of_one_study_can_be_sent_as_one_case(secondread: Command, lesion_file: Path, tmp_path: Path) -> None:
    second = tmp_path / "second.dcm"
    image, _ = phantom(7, irregularity=0.15)
    second.write_bytes(phantom_instance(image, PhantomStudy(name="lesion", instance_number=2, spacing_mm=(0.2, 0.2))))
    shown = secondread("submit", str(lesion_file), str(second), "--study-per-case")
    assert shown.exit_code == 0
    assert "lesion.dcm and 1" in shown.stdout
    assert "2 findings in 2" in shown.stdout


def test_the_list_has_the_newest_case_first(secondread: Command, client: Client, lesion_file: Path) -> None:
    case = client.submit(lesion_file, wait_s=25, client_reference="order-17", lane="urgent")
    shown = secondread("list", "--limit", "1", "--lane", "urgent", "--status", "completed", "--last-hours", "1")
    assert shown.exit_code == 0
    assert case.case_id in shown.stdout
    assert "order-17" in shown.stdout


def test_a_case_that_has_its_answer_cannot_be_cancelled(secondread: Command, client: Client, lesion_file: Path) -> None:
    case = client.submit(lesion_file, wait_s=25)
    refused = secondread("cancel", case.case_id)
    assert refused.exit_code == 1
    assert "The case has ended already" in refused.stderr


@pytest.mark.parametrize("command", ["show", "cancel"])
def test_a_case_that_is_none_of_ours_is_a_sentence(secondread: Command, command: str) -> None:
    answered = secondread(command, "case_" + "0" * 32)
    assert answered.exit_code == 1
    assert "There is no such thing for this key" in answered.stderr


def test_a_wrong_key_is_a_sentence(secondread: Command) -> None:
    answered = secondread("list", "--key", "srk_wrong")
    assert answered.exit_code == 1
    assert "No valid API key was given" in answered.stderr


def test_the_doctor_finds_the_deployment_that_runs(secondread: Command) -> None:
    shown = secondread("doctor")
    assert shown.exit_code == 0, shown.output
    assert "`secondread up` runs here" in shown.stdout


def test_the_events_of_a_case_come_as_they_happen(client: Client, lesion_file: Path) -> None:
    case = client.submit(lesion_file)
    events = list(client.events(case.case_id))
    assert (events[0].status, events[-1].status) == ("accepted", "completed")
    assert [event.version for event in events] == list(range(1, len(events) + 1))


def test_a_replay_with_the_same_key_is_the_same_case(client: Client, lesion_file: Path) -> None:
    first, second = (client.submit(lesion_file, idempotency_key="the-same-key") for _ in range(2))
    assert first.case_id == second.case_id


def test_pictures_and_report_fit_together(client: Client, lesion_file: Path) -> None:
    case = client.submit(lesion_file, wait_s=25)
    report, timeline = client.result(case.case_id, version=1), client.timeline(case.case_id)
    with Image.open(BytesIO(client.probability(case.case_id))) as probability:
        assert probability.size == (320, 400)
    assert report.images[0].scores.keys() == {"malignancy", "presence"}
    assert [stage.stage for stage in timeline.stages][:2] == ["receive", "fetch"]


def test_an_address_that_callbacks_may_not_go_to_is_refused(client: Client) -> None:
    with pytest.raises(ProblemError) as refused:
        client.add_endpoint("http://169.254.169.254/latest")
    assert (refused.value.code, refused.value.status) == ("endpoint-forbidden", 422)
