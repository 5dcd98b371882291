"""A doorbell: small, versioned, and nothing but ids and times."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from pydantic import ValidationError

from schemas.message import StageMessage

GIVEN: dict[str, Any] = {
    "case_id": "019f0000-0000-7000-8000-00000000002a",
    "stage": "fetch",
    "attempt": 3,
    "publish_no": 2**62,
    "deadline_at": "2026-01-02T12:00:30Z",
    "traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01",
}


def test_a_message_is_read_from_what_the_queue_carries() -> None:
    message = StageMessage.model_validate(json.loads(json.dumps(GIVEN)))

    assert message.case_id == UUID(GIVEN["case_id"])
    assert message.deadline_at == datetime(2026, 1, 2, 12, 0, 30, tzinfo=UTC)
    assert message.schema_version == 1


def test_a_message_comes_back_from_json_as_it_was() -> None:
    message = StageMessage.model_validate(GIVEN)

    assert StageMessage.model_validate(json.loads(json.dumps(message.model_dump(mode="json")))) == message


@pytest.mark.parametrize(
    "change",
    [
        {"patient_name": "x"},
        {"pixels": [0, 1]},
        {"schema_version": 2},
        {"schema_version": "1"},
        {"schema_version": None},
        {"attempt": -1},
        {"publish_no": -1},
        {"attempt": "many"},
        {"case_id": "case_1"},
        {"stage": "x" * 33},
        {"deadline_at": "2026-01-02T12:00:30"},
        {"traceparent": "x" * 65},
    ],
    ids=lambda change: next(iter(change.items())).__repr__(),
)
def test_what_is_not_a_doorbell_of_this_version_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        StageMessage.model_validate(GIVEN | change)


@pytest.mark.parametrize("name", ["case_id", "stage", "attempt", "publish_no", "deadline_at"])
def test_a_message_without_a_part_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        StageMessage.model_validate({key: value for key, value in GIVEN.items() if key != name})


def test_a_message_does_not_change() -> None:
    with pytest.raises(ValidationError):
        StageMessage.model_validate(GIVEN).attempt = 4  # type: ignore[misc]
