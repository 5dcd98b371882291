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
from schemas.message import StageMessage
from workers.doorbell import ring, ring_delivery

pytestmark = pytest.mark.services

CASE = UUID("019f0000-0000-7000-8000-00000000002a")
DUE_AT = datetime(2026, 1, 2, 12, 0, 30, tzinfo=UTC)
TRACEPARENT = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"


def rung(lane: Lane = Lane.ROUTINE, *, attempt: int = 3) -> Rung:
    return Rung(CASE, publish_no=2**40, attempt=attempt, lane=lane, deadline_at=DUE_AT)


def queued(client: "redis.Redis", key: str) -> dict[str, Any]:
    """The one message under a key."""
    (raw,) = client.lrange(key, 0, -1)
    message: dict[str, Any] = json.loads(raw)
    return message


def arguments(message: dict[str, Any]) -> Any:
    args, kwargs, _ = json.loads(base64.b64decode(message["body"]))
    assert args == []
    return kwargs


def test_a_doorbell_says_case_stage_attempt_number_deadline_and_trace(app: Celery, client: "redis.Redis") -> None:
    ring(app, Pool.INTAKE, rung(), traceparent=TRACEPARENT)

    message = queued(client, "intake\x06\x166")
    assert message["headers"]["task"] == "intake.fetch"
    assert arguments(message) == {
        "schema_version": 1,
        "case_id": str(CASE),
        "stage": "fetch",
        "attempt": 3,
        "publish_no": 2**40,
        "deadline_at": "2026-01-02T12:00:30Z",
        "traceparent": TRACEPARENT,
    }


def test_what_was_published_is_read_as_it_was_meant(app: Celery, client: "redis.Redis") -> None:
    ring(app, Pool.REPORTING, rung())

    message = StageMessage.model_validate(arguments(queued(client, "reporting\x06\x166")))

    assert message == StageMessage(case_id=CASE, stage="postprocess", attempt=3, publish_no=2**40, deadline_at=DUE_AT)


def test_a_doorbell_is_json_and_under_a_kilobyte(app: Celery, client: "redis.Redis") -> None:
    ring(app, Pool.INFERENCE, rung(), traceparent=TRACEPARENT)

    message = queued(client, "inference\x06\x166")
    assert (message["content-type"], message["content-encoding"]) == ("application/json", "utf-8")
    assert len(json.dumps(arguments(message))) < 1000


def test_more_than_a_doorbell_is_not_sent(app: Celery, client: "redis.Redis") -> None:
    with pytest.raises(ValueError, match="at most 64 characters"):
        ring(app, Pool.INTAKE, rung(), traceparent="x" * 1000)

    assert client.keys("intake*") == []


def test_a_second_ring_of_one_attempt_is_the_same_task(app: Celery, client: "redis.Redis") -> None:
    ring(app, Pool.INTAKE, rung())
    ring(app, Pool.INTAKE, rung())
    ring(app, Pool.INTAKE, rung(attempt=4))

    task_ids = [json.loads(raw)["headers"]["id"] for raw in client.lrange("intake\x06\x166", 0, -1)]
    assert task_ids == [f"{CASE.hex}:fetch:4", f"{CASE.hex}:fetch:3", f"{CASE.hex}:fetch:3"]


@pytest.mark.parametrize(("lane", "key"), [("urgent", "intake"), ("routine", "intake\x06\x166"), ("compensation", "intake\x06\x169")])
def test_a_lane_is_a_list_of_its_own(app: Celery, client: "redis.Redis", lane: str, key: str) -> None:
    ring(app, Pool.INTAKE, rung(Lane(lane)))

    assert queued(client, key)["properties"]["priority"] == {"urgent": 0, "routine": 6, "compensation": 9}[lane]
    assert client.keys("intake*") == [key.encode()]


def test_a_callbacks_doorbell_names_the_event_alone(app: Celery, client: "redis.Redis") -> None:
    ring_delivery(app, CASE)

    message = queued(client, "delivery\x06\x166")
    assert (message["headers"]["task"], message["headers"]["id"]) == ("delivery.deliver", f"evt:{CASE.hex}")
    assert arguments(message) == {"delivery_id": CASE.hex}


def test_no_message_asks_for_an_end_a_retry_or_a_later_time(app: Celery, client: "redis.Redis") -> None:
    ring(app, Pool.INTAKE, rung())

    headers = queued(client, "intake\x06\x166")["headers"]
    assert (headers["eta"], headers["expires"], headers["timelimit"], headers["retries"]) == (None, None, [None, None], 0)


def test_a_redis_that_is_absent_or_frozen_holds_a_publisher_for_three_seconds_at_most(unreachable: Celery) -> None:
    started = time.monotonic()

    ring(unreachable, Pool.INTAKE, rung())

    assert time.monotonic() - started < 3
