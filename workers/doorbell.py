"""Ringing a pool: one small JSON message after the commit that it speaks of; and a case's place in the waiting line."""

import json
import time
from datetime import datetime
from uuid import UUID

from celery import Celery
from kombu.exceptions import OperationalError

from pipeline.batching.lanes import virtual_deadline
from pipeline.flow import Pool, doorbell_of, stages_of
from pipeline.observability.log import logger
from pipeline.persistence.ledger.claims import Rung
from pipeline.persistence.waiting_line import Waiting
from schemas.message import StageMessage
from workers.app import PRIORITY

MAX_ARGUMENT_BYTES = 1_000
"""A handle fits; a tensor does not."""


class MessageTooLarge(ValueError):
    """Somebody tried to send more than a doorbell."""


def ring(app: Celery, pool: Pool, rung: Rung, *, traceparent: str | None = None) -> None:
    """Publish a case's doorbell. A failure is only logged: the row stands, and the sweeper rings again."""
    message = StageMessage(
        case_id=rung.case_id,
        stage=stages_of(pool)[0].name,
        attempt=rung.attempt,
        publish_no=rung.publish_no,
        deadline_at=rung.deadline_at,
        traceparent=traceparent,
    )
    arguments = message.model_dump(mode="json", exclude_none=True)
    if len(json.dumps(arguments)) > MAX_ARGUMENT_BYTES:
        raise MessageTooLarge("a doorbell carries ids, never data")
    # The id says what the message is for: a second ring of the same attempt is the same task in Flower.
    task_id = f"{rung.case_id.hex}:{doorbell_of(pool).partition('.')[2]}:{rung.attempt}"
    _publish(app, pool, arguments, task_id=task_id, priority=PRIORITY[rung.lane])


def place_in_line(rung: Rung, *, accepted_at: datetime, image_count: int) -> Waiting:
    """Where a prepared case stands in its waiting line, whether intake or the sweeper brings it."""
    return Waiting(
        case_id=rung.case_id,
        virtual_deadline=virtual_deadline(rung.lane, accepted_at=accepted_at.timestamp()),
        deadline=rung.deadline_at.timestamp(),
        ready_at=time.time(),
        image_count=image_count,
        lane=rung.lane.value,
        publish_no=rung.publish_no,
    )


def ring_delivery(app: Celery, delivery_id: UUID) -> None:
    """Publish the doorbell of a callback."""
    _publish(app, Pool.DELIVERY, {"delivery_id": delivery_id.hex}, task_id=f"evt:{delivery_id.hex}", priority=6)


def _publish(app: Celery, pool: Pool, arguments: dict[str, object], *, task_id: str, priority: int) -> None:
    try:
        app.send_task(doorbell_of(pool), kwargs=arguments, task_id=task_id, queue=pool.value, priority=priority)
    except OperationalError as error:
        logger().warning("doorbell_not_rung", pool=pool.value, kind=type(error).__name__)
