"""A doorbell: small, versioned, and nothing but ids and times."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from pydantic import ValidationError

from schemas.message import MOST_CASES, SCHEMA_VERSION, StageMessage, is_newer, read_message

GIVEN: dict[str, Any] = {
    "case_ids": ["019f0000-0000-7000-8000-00000000002a", "019f0000-0000-7000-8000-00000000002b"],
    "stage": "fetch",
    "publish_no": 2**62,
    "deadline_at": "2026-01-02T12:00:30Z",
}


def test_a_message_is_read_from_what_the_queue_carries() -> None:
    message = StageMessage.model_validate(json.loads(json.dumps(GIVEN)))

    assert message.case_ids == tuple(UUID(case_id) for case_id in GIVEN["case_ids"])
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
        {"publish_no": -1},
        {"publish_no": "many"},
        {"case_ids": []},
        {"case_ids": ["case_1"]},
        {"case_ids": GIVEN["case_ids"][:1] * (MOST_CASES + 1)},
        {"stage": "x" * 33},
        {"deadline_at": "2026-01-02T12:00:30"},
    ],
    ids=lambda change: next(iter(change.items())).__repr__(),
)
def test_what_is_not_a_doorbell_of_this_version_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        StageMessage.model_validate(GIVEN | change)


@pytest.mark.parametrize("name", ["case_ids", "stage", "publish_no", "deadline_at"])
def test_a_message_without_a_part_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        StageMessage.model_validate({key: value for key, value in GIVEN.items() if key != name})


def test_a_message_does_not_change() -> None:
    with pytest.raises(ValidationError):
        StageMessage.model_validate(GIVEN).publish_no = 4  # type: ignore[misc]


def test_a_message_of_the_next_version_is_read_as_far_as_it_is_known() -> None:
    newer = GIVEN | {"schema_version": SCHEMA_VERSION + 1, "hurry": 3, "lanes": ["urgent"]}

    assert is_newer(newer)
    assert read_message(newer) == StageMessage.model_validate(GIVEN)


def test_a_message_of_the_next_version_that_lacks_what_is_needed_is_refused() -> None:
    newer = {key: value for key, value in GIVEN.items() if key != "case_ids"} | {"schema_version": SCHEMA_VERSION + 1, "cases": []}

    with pytest.raises(ValidationError):
        read_message(newer)


@pytest.mark.parametrize("version", [1, 0, -1, "2", 2.0, True, None])
def test_only_a_higher_number_is_newer_and_everything_else_is_held_to_the_letter(version: object) -> None:
    assert not is_newer(GIVEN | {"schema_version": version})
    with pytest.raises(ValidationError):
        read_message(GIVEN | {"schema_version": version, "hurry": 3})


def test_a_message_that_names_no_version_is_of_the_first() -> None:
    assert read_message(GIVEN).schema_version == 1


def test_the_longest_doorbell_stays_below_a_kilobyte() -> None:
    given = GIVEN | {"case_ids": GIVEN["case_ids"][:1] * MOST_CASES, "stage": "s" * 32, "publish_no": 10**15}

    # As Celery's serialiser writes it, with a space after each comma and colon.
    assert len(json.dumps(read_message(given).model_dump(mode="json"))) < 1_000
