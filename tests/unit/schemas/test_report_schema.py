"""The published JSON Schema: it is the model's, and every kind of report that we write keeps to it."""

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from jsonschema import Draft202012Validator, FormatChecker, ValidationError

from pipeline.cases.reading import CaseReading, MeasuredRegion, ReadImage, Revision
from pipeline.inference.card import SHIPPED_MODELS, load_card
from pipeline.stages.report import report
from schemas.report import Box, ImageStatus, Measurement, Report
from schemas.tensor import TensorHandle
from schemas.work import InferredCase, PreparedCase, PreparedImage, PreparedInstance
from tests.headers import breast_ultrasound

PUBLISHED = Path(__file__).parents[3] / "docs" / "report.schema.json"
CASE_ID = UUID("01970000-0000-7000-8000-000000000002")

HEADER = breast_ultrasound(
    body_part=None,
    laterality="R",
    spacing_mm=(0.1, 0.2),
    spacing_source="ultrasound_region",
    warnings=("odd-but-readable",),
)

REGION = MeasuredRegion(
    box=Box(top_px=1, left_px=2, height_px=30, width_px=40),
    centroid_px=(15.5, 21.5),
    measurements=(
        Measurement(name="area", value=24.0, unit="mm2"),
        Measurement(name="long_axis", value=8.5, unit="mm"),
        Measurement(name="short_axis", value=5.6, unit="mm"),
        Measurement(name="mean_value", value=61.25, unit="1"),
    ),
    probability=1.0,
)


@pytest.fixture(scope="module")
def published() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    return schema


@pytest.fixture(scope="module")
def validator(published: dict[str, Any]) -> Draft202012Validator:
    return Draft202012Validator(published, format_checker=FormatChecker())


def read_image(status: ImageStatus) -> ReadImage:
    """An image with all that a status can bring along."""
    is_read = status in ("findings", "nothing_found")
    return ReadImage(
        image=PreparedImage(instance=0, frame=1, outcome="ready", fingerprint="f" * 64 if is_read else None),
        instance=PreparedInstance(digest="1" * 64, header=None if status == "unreadable" else HEADER),
        status=status,
        reason=None if is_read else "a-reason",
        scores={"malignancy": 0.25, "presence": 1.0} if is_read else {},
        regions=(REGION, REGION) if is_read else (),
        artefacts={"overlay.png": b"drawn"} if is_read else {},
    )


def inferred(noon: datetime) -> InferredCase:
    probability = TensorHandle(
        store="memory",
        key="0" * 32,
        shape=(1, 64, 64),
        dtype="uint8",
        digest="d" * 64,
        case_id=CASE_ID,
        generation=0,
        expires_at=noon + timedelta(minutes=1),
    )
    return InferredCase(
        model="breast-lesion:1",
        weights_digest="b" * 64,
        probability=probability,
        scores=((0.25, 1.0),),
        batch_id="batch-7",
        batch_size=4,
        batch_position=2,
        fired_because="full",
        device="cpu",
        forward_s=0.02,
    )


def written(noon: datetime, *statuses: ImageStatus) -> Report:
    """A report as the reporting stage writes it."""
    images = tuple(read_image(status) for status in statuses)
    prepared = PreparedCase(
        model="breast-lesion:1", instances=tuple(image.instance for image in images), images=tuple(image.image for image in images)
    )
    was_inferred = any(image.is_read for image in images)
    reading = CaseReading(prepared=prepared, inferred=inferred(noon) if was_inferred else None, images=images)
    revision = Revision(version=1, kind="final", at=noon, product_version="0.1.0")
    return report(reading, case_id=CASE_ID, card=load_card(SHIPPED_MODELS / "breast-lesion-1"), revision=revision)[0]


def test_the_published_schema_is_the_models_own(published: dict[str, Any]) -> None:
    """given a changed report model, then docs/report.schema.json is written anew from `Report.model_json_schema()`"""
    assert published == Report.model_json_schema()


def test_the_published_schema_is_a_valid_schema(published: dict[str, Any]) -> None:
    Draft202012Validator.check_schema(published)


@pytest.mark.parametrize(
    ("statuses", "outcome", "is_complete"),
    [
        (("findings",), "findings", True),
        (("nothing_found",), "nothing_found", True),
        (("not_assessable",), "not_assessable", False),
        (("not_applicable",), "not_applicable", False),
        (("unreadable",), "not_assessable", False),
        (("findings", "nothing_found", "unreadable", "not_applicable"), "findings", False),
        (("nothing_found", "not_assessable"), "nothing_found", False),
    ],
)
def test_every_state_keeps_to_the_schema(
    validator: Draft202012Validator, noon: datetime, statuses: tuple[ImageStatus, ...], outcome: str, is_complete: bool
) -> None:
    sent = json.loads(written(noon, *statuses).model_dump_json())
    validator.validate(sent)
    assert (sent["outcome"], sent["is_complete"]) == (outcome, is_complete)


def test_a_report_survives_the_journey(noon: datetime) -> None:
    ours = written(noon, "findings", "unreadable")
    assert Report.model_validate_json(ours.model_dump_json()) == ours


@pytest.mark.parametrize("change", [{"outcome": "healthy"}, {"version": 0}, {"patient_name": "x"}, {"created_at": None}])
def test_what_is_no_report_is_refused(validator: Draft202012Validator, noon: datetime, change: dict[str, object]) -> None:
    sent = json.loads(written(noon, "findings").model_dump_json())
    with pytest.raises(ValidationError):
        validator.validate(sent | change)


def test_the_schema_knows_no_attribute_of_a_person(published: dict[str, Any]) -> None:
    assert "patient" not in json.dumps(published).lower()
