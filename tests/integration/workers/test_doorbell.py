"""A doorbell as it lies in a real Valkey, and as it fails when there is none."""

import base64
import json
import time
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
import redis
from celery import Celery

from pipeline.flow import Lane, Pool
from pipeline.persistence.ledger.claims import Rung
from schemas.message import MOST_CASES, StageMessage
from workers.doorbell import ring, ring_delivery

pytestmark = pytest.mark.services

CASE = UUID("019f0000-0000-7000-8000-00000000002a")
DUE_AT = datetime(2026, 1, 2, 12, 0, 30, tzinfo=UTC)


def rung(lane: Lane = Lane.ROUTINE, *, attempt: int = 3, case_id: UUID = CASE, publish_no: int = 2**40) -> Rung:
    return Rung(case_id, publish_no=publish_no, attempt=attempt, lane=lane, deadline_at=DUE_AT)


def queued(client: "redis.Redis", key: str) -> dict[str, Any]:
    """The one message under a key."""
    (raw,) = client.lrange(key, 0, -1)
    message: dict[str, Any] = json.loads(raw)
    return message


def arguments(message: dict[str, Any]) -> Any:
    args, kwargs, _ = json.loads(base64.b64decode(message["body"]))
    assert args == []
    return kwargs


def test_a_doorbell_says_cases_stage_number_and_deadline(app: Celery, client: "redis.Redis") -> None:
    ring(app, Pool.INTAKE, [rung()])

    message = queued(client, "intake\x06\x166")
    assert message["headers"]["task"] == "intake.ring"
    assert arguments(message) == {
        "schema_version": 1,
        "case_ids": [str(CASE)],
        "stage": "fetch",
        "publish_no": 2**40,
        "deadline_at": "2026-01-02T12:00:30Z",
    }


def test_what_was_published_is_read_as_it_was_meant(app: Celery, client: "redis.Redis") -> None:
    ring(app, Pool.REPORTING, [rung()])

    message = StageMessage.model_validate(arguments(queued(client, "reporting\x06\x166")))

    assert message == StageMessage(case_ids=(CASE,), stage="postprocess", publish_no=2**40, deadline_at=DUE_AT)


def test_cases_that_became_ready_together_share_doorbells_lane_by_lane(app: Celery, client: "redis.Redis") -> None:
    routine = [rung(case_id=UUID(int=number), publish_no=100 + number) for number in range(MOST_CASES + 3)]
    urgent = rung(Lane.URGENT, case_id=UUID(int=99), publish_no=7)

    ring(app, Pool.REPORTING, [*routine[:5], urgent, *routine[5:]])

    messages = [StageMessage.model_validate(arguments(json.loads(raw))) for raw in client.lrange("reporting\x06\x166", 0, -1)]
    assert sorted(len(message.case_ids) for message in messages) == [3, MOST_CASES]
    assert {case_id for message in messages for case_id in message.case_ids} == {each.case_id for each in routine}
    for message in messages:
        assert message.publish_no == max(each.publish_no for each in routine if each.case_id in message.case_ids)
    (urgent_message,) = client.lrange("reporting", 0, -1)
    assert arguments(json.loads(urgent_message))["case_ids"] == [str(UUID(int=99))]


def test_a_ring_for_nobody_is_no_message(app: Celery, client: "redis.Redis") -> None:
    ring(app, Pool.INTAKE, [])

    assert client.keys("intake*") == []


def test_the_fullest_doorbell_is_json_and_under_a_kilobyte(app: Celery, client: "redis.Redis") -> None:
    ring(app, Pool.INFERENCE, [rung(case_id=UUID(int=2**128 - number), publish_no=2**62) for number in range(1, MOST_CASES + 1)])

    message = queued(client, "inference\x06\x166")
    assert (message["content-type"], message["content-encoding"]) == ("application/json", "utf-8")
    assert len(arguments(message)["case_ids"]) == MOST_CASES
    assert len(json.dumps(arguments(message))) < 1000


def test_a_second_ring_of_one_attempt_is_the_same_task(app: Celery, client: "redis.Redis") -> None:
    ring(app, Pool.INTAKE, [rung()])
    ring(app, Pool.INTAKE, [rung()])
    ring(app, Pool.INTAKE, [rung(attempt=4)])

    task_ids = [json.loads(raw)["headers"]["id"] for raw in client.lrange("intake\x06\x166", 0, -1)]
    assert task_ids == [f"{CASE.hex}:ring-fetch:4", f"{CASE.hex}:ring-fetch:3", f"{CASE.hex}:ring-fetch:3"]


@pytest.mark.parametrize(("lane", "key"), [("urgent", "intake"), ("routine", "intake\x06\x166"), ("compensation", "intake\x06\x169")])
def test_a_lane_is_a_list_of_its_own(app: Celery, client: "redis.Redis", lane: str, key: str) -> None:
    ring(app, Pool.INTAKE, [rung(Lane(lane))])

    assert queued(client, key)["properties"]["priority"] == {"urgent": 0, "routine": 6, "compensation": 9}[lane]
    assert client.keys("intake*") == [key.encode()]


def test_a_callbacks_doorbell_names_the_event_alone(app: Celery, client: "redis.Redis") -> None:
    ring_delivery(app, CASE)

    message = queued(client, "delivery\x06\x166")
    assert (message["headers"]["task"], message["headers"]["id"]) == ("delivery.deliver", f"evt:{CASE.hex}")
    assert arguments(message) == {"delivery_id": CASE.hex}


def test_no_message_asks_for_an_end_a_retry_or_a_later_time(app: Celery, client: "redis.Redis") -> None:
    ring(app, Pool.INTAKE, [rung()])

    headers = queued(client, "intake\x06\x166")["headers"]
    assert (headers["eta"], headers["expires"], headers["timelimit"], headers["retries"]) == (None, None, [None, None], 0)


def test_a_redis_that_is_absent_or_frozen_holds_a_publisher_for_three_seconds_at_most(unreachable: Celery) -> None:
    started = time.monotonic()

    ring(unreachable, Pool.INTAKE, [rung()])

    assert time.monotonic() - started < 3
