"""Cases, reports and timelines to show, and a command that knows no environment but the test's."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from schemas.api import CaseView, StageTimes, TimelineView
from workers.cli.main import app

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
CASE_ID = "case_0197c1d2e3f4a5b6c7d8e9f001122334"
CODE = {"value": "4147007", "scheme": "SCT", "meaning": "Mass"}


def finding_body(number: int, *, long: float, short: float, unit: str = "mm") -> dict[str, Any]:
    return {
        "number": number,
        "tracking_uid": f"2.25.{number}",
        "concept": CODE,
        "category": CODE,
        "site": CODE | {"meaning": "Breast"},
        "laterality": "L",
        "box": {"top_px": 1, "left_px": 2, "height_px": 3, "width_px": 4},
        "centroid_px": [10.0, 20.0],
        "measurements": [
            {"name": "area", "value": long * short, "unit": f"{unit}2"},
            {"name": "long_axis", "value": long, "unit": unit},
            {"name": "short_axis", "value": short, "unit": unit},
        ],
        "probability": 0.97,
        "is_suspicious": True,
    }


@pytest.fixture
def report_body() -> Callable[..., dict[str, Any]]:
    """Make a report of one image as the door writes it; each finding is given by its axes and unit."""

    def make(outcome: str = "findings", *findings: tuple[float, float, str], **changes: Any) -> dict[str, Any]:
        image = {
            "sop_instance_uid": "1.2",
            "frame": 1,
            "status": outcome,
            "scores": {"malignancy": 0.25, "presence": 0.99},
            "findings": [
                finding_body(number, long=long, short=short, unit=unit) for number, (long, short, unit) in enumerate(findings, start=1)
            ],
            "digest": "0" * 64,
            "artefacts": {"image-1/overlay.png": "1" * 64},
        }
        return {
            "case_id": CASE_ID,
            "version": 1,
            "kind": "final",
            "outcome": outcome,
            "summary": "One sentence.",
            "is_complete": True,
            "study_instance_uid": "1.2.3",
            "images": [image],
            "algorithm": {
                "name": "m",
                "version": "1",
                "manufacturer": "us",
                "device_uid": "1.2",
                "weights_sha256": "2" * 64,
                "product_version": "0",
                "thresholds": {},
            },
            "input_digest": "3" * 64,
            "limits": [],
            "created_at": "2026-01-02T12:00:01Z",
            **changes,
        }

    return make


@pytest.fixture
def make_case() -> Callable[..., CaseView]:
    """Make a case as the client gives it."""

    def make(**changes: Any) -> CaseView:
        body = {
            "case_id": CASE_ID,
            "status": "completed",
            "lane": "routine",
            "accepted_at": NOON,
            "deadline_at": NOON + timedelta(seconds=30),
            "changed_at": NOON,
            "version": 7,
            "result_version": 1,
            "is_preliminary": False,
            "links": {},
        }
        return CaseView.model_validate(body | changes)

    return make


@pytest.fixture
def make_timeline() -> Callable[..., TimelineView]:
    """Make a timeline from (wait, work) in milliseconds, stage by stage; None was not reached."""

    def make(*stages: tuple[int, int] | None) -> TimelineView:
        names = ("receive", "fetch", "preprocess", "infer", "postprocess", "report", "deliver")
        at, shown = NOON, []
        for name, times in zip(names, stages, strict=False):
            if times is None:
                shown.append(StageTimes(stage=name))
                continue
            wait_ms, work_ms = times
            entered_at = at + timedelta(milliseconds=wait_ms)
            at = entered_at + timedelta(milliseconds=work_ms)
            shown.append(StageTimes(stage=name, entered_at=entered_at, left_at=at, wait_ms=wait_ms, duration_ms=work_ms))
        return TimelineView(case_id=CASE_ID, stages=tuple(shown), events=(), deliveries=())

    return make


@pytest.fixture
def secondread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run the command with variables of its own; the state folder is the test's."""
    for name in ("URL", "API_KEY", "REDIS_URL", "DATABASE_URL"):
        monkeypatch.delenv(f"SECONDREAD_{name}", raising=False)

    def run(*arguments: str, **variables: str) -> Result:
        return CliRunner().invoke(app, list(arguments), env={"SECONDREAD_STATE_DIR": str(tmp_path / "state"), **variables})

    return run
