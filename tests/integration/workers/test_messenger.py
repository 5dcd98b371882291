"""Ringing without waiting: messages arrive in their order, and a Redis that is absent or frozen holds up nobody."""

import json
import time
from typing import Any
from uuid import uuid4

import pytest
import redis
from celery import Celery

from pipeline.flow import Pool
from workers.doorbell import ring_delivery
from workers.messenger import CLOSE_S, Messenger

pytestmark = pytest.mark.services


def sent_ids(client: "redis.Redis") -> list[Any]:
    return [json.loads(raw)["headers"]["id"] for raw in client.lrange(f"{Pool.DELIVERY.value}\x06\x166", 0, -1)][::-1]


def test_messages_are_sent_in_their_order_and_all_before_the_end(app: Celery, client: "redis.Redis") -> None:
    messenger = Messenger(app)

    for number in range(20):
        messenger.send_task("delivery.deliver", task_id=f"message-{number}", queue="delivery", priority=6)
    messenger.close()

    assert sent_ids(client) == [f"message-{number}" for number in range(20)]


def test_whoever_rings_goes_on_at_once_although_redis_is_absent_or_frozen(unreachable: Celery) -> None:
    messenger = Messenger(unreachable)
    begun = time.monotonic()

    for _ in range(200):
        ring_delivery(messenger, uuid4())
    rung_s = time.monotonic() - begun
    messenger.close()

    assert rung_s < 1.0
    # What waits behind a message that cannot be sent is dropped with it: two hundred timeouts would last minutes.
    assert time.monotonic() - begun < CLOSE_S + 10
    messenger._thread.join(10)
    assert not messenger._thread.is_alive()
