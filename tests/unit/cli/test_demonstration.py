from collections.abc import Callable
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pydicom
import pytest
from PIL import Image
from standardwebhooks import Webhook

from schemas.report import Report
from workers.cli.demonstration.judgement import Judged
from workers.cli.demonstration.receiver import SIGNATURE_OK, CallbackReceiver
from workers.cli.demonstration.server import demo_settings
from workers.cli.demonstration.studies import dice, make_studies
from workers.cli.demonstration.study import DemoStudy
from workers.settings import Settings

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
CASE_ID = "case_0197c1d2e3f4a5b6c7d8e9f001122334"
LESION = DemoStudy("a lesion", Path("x"), "findings", overlap=lambda png: 0.0)


def png(values: list[list[int]]) -> bytes:
    written = BytesIO()
    Image.fromarray(np.array(values, np.uint8)).save(written, "PNG")
    return written.getvalue()


def event_of(case_id: str) -> bytes:
    data = f'{{"case_id": "{case_id}", "version": 1, "status": "completed", "lane": "routine", "links": {{"case": "http://h/c"}}}}'
    return f'{{"type": "case.completed", "timestamp": "2026-01-02T12:00:00Z", "data": {data}}}'.encode()


def deliver(receiver: CallbackReceiver, body: bytes, *, signed: bytes | None = None) -> int:
    now = datetime.now(UTC)
    headers = {
        "webhook-id": "evt_1",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(SECRET).sign("evt_1", now, (signed or body).decode()),
    }
    return httpx.post(receiver.url, content=body, headers=headers, trust_env=False).status_code


def test_dice_counts_the_shared_pixels_twice() -> None:
    # Outlined: 2 pixels (128 and 255 of 255 are at least a half, 127 is not); truth: 2; shared: 1. So 2 x 1 / (2 + 2).
    truth = np.array([[True, True], [False, False]])
    assert dice(png([[128, 127], [255, 0]]), truth) == pytest.approx(0.5)


def test_the_made_up_studies_are_ultrasound_with_a_scale_and_the_ct_is_real(tmp_path: Path) -> None:
    studies = make_studies(tmp_path)
    headers = [pydicom.dcmread(study.file) for study in studies]
    assert [header.Modality for header in headers] == ["US", "US", "US", "US", "CT"]
    assert [study.expected for study in studies] == ["findings"] * 3 + ["nothing_found", "not_applicable"]
    assert len({header.StudyInstanceUID for header in headers}) == 5
    # 0.2 mm, in centimetres as regions state it.
    assert all(header.SequenceOfUltrasoundRegions[0].PhysicalDeltaX == pytest.approx(0.02) for header in headers[:4])


def test_a_signed_callback_is_trusted() -> None:
    with CallbackReceiver() as receiver:
        assert deliver(receiver, event_of(CASE_ID)) == 204
        assert receiver.verified(SECRET, {CASE_ID}, until_s=5) == {CASE_ID: SIGNATURE_OK}


def test_a_callback_whose_body_was_changed_is_not() -> None:
    with CallbackReceiver() as receiver:
        deliver(receiver, event_of(CASE_ID), signed=event_of(CASE_ID.replace("4", "5")))
        assert receiver.verified(SECRET, {CASE_ID}, until_s=5) == {CASE_ID: "no signature fits this body"}


def test_a_callback_that_never_comes_is_absent() -> None:
    with CallbackReceiver() as receiver:
        assert receiver.verified(SECRET, {CASE_ID}, until_s=0) == {}


def test_what_is_no_event_does_not_disturb() -> None:
    with CallbackReceiver() as receiver:
        deliver(receiver, b"{}")
        deliver(receiver, event_of(CASE_ID))
        assert receiver.verified(SECRET, {CASE_ID}, until_s=5)[CASE_ID] == SIGNATURE_OK


def test_the_demonstration_reaches_nothing_that_the_user_has_set(tmp_path: Path) -> None:
    own = demo_settings(
        Settings(
            state_dir=tmp_path,
            redis_url="redis://production/0",
            database_url="postgresql://production/d",
            uploads_url="s3://production",
            sources={"archive": "s3://archive"},
        )
    ).as_environment()
    assert not any("production" in value or "archive" in value for value in own.values())
    assert own["SECONDREAD_STATE_DIR"] == str(tmp_path / "demo")
    assert (own["SECONDREAD_GATEWAY_PORT"], own["SECONDREAD_METRICS_PORT"]) == ("0", "0")


@pytest.mark.parametrize(
    ("overlap", "callback", "faults"),
    [
        (0.9, SIGNATURE_OK, []),
        (0.4, SIGNATURE_OK, ["the outline misses the lesion"]),
        (None, SIGNATURE_OK, ["the outline misses the lesion"]),
        (0.9, "did not come", ["callback: did not come"]),
    ],
)
def test_an_answer_is_judged_by_place_and_callback(
    report_body: Callable[..., dict[str, Any]], overlap: float | None, callback: str, faults: list[str]
) -> None:
    report = Report.model_validate(report_body("findings", (4.0, 2.0, "mm")))
    assert Judged(LESION, report, overlap=overlap, callback=callback).faults == faults


def test_another_outcome_than_expected_is_a_fault(report_body: Callable[..., dict[str, Any]]) -> None:
    judged = Judged(LESION, Report.model_validate(report_body("nothing_found")), overlap=0.9, callback=SIGNATURE_OK)
    assert judged.faults == ["findings was expected"]


def test_a_study_that_was_refused_is_a_fault() -> None:
    assert Judged(LESION, None, refusal="The ledger is not available.").faults == ["The ledger is not available."]
