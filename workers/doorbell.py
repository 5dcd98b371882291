"""Ringing a pool: one small JSON message after the commit that it speaks of; and a case's place in the waiting line."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from kombu.exceptions import OperationalError

from pipeline.batching.lanes import virtual_deadline
from pipeline.flow import Lane, Pool, doorbell_of, stages_of
from pipeline.observability.log import logger
from pipeline.persistence.ledger.claims import Rung
from pipeline.persistence.waiting_line import Waiting
from schemas.message import MOST_CASES, StageMessage
from workers.app import PRIORITY


class Publisher(Protocol):
    """What sends a message: the Celery application, or somebody who does it later."""

    def send_task(self, name: str, /, **options: Any) -> object:
        """Publish a task by its name."""
        ...


def ring(app: Publisher, pool: Pool, rungs: Iterable[Rung]) -> None:
    """Publish the doorbells of cases that became ready together: one for each lane and `MOST_CASES` of them.

    A failure is only logged: the rows stand, and the sweeper rings again.
    """
    by_lane: defaultdict[Lane, list[Rung]] = defaultdict(list)
    for rung in rungs:
        by_lane[rung.lane].append(rung)
    for of_lane in by_lane.values():
        for first in range(0, len(of_lane), MOST_CASES):
            _ring_group(app, pool, of_lane[first : first + MOST_CASES])


def _ring_group(app: Publisher, pool: Pool, group: Sequence[Rung]) -> None:
    message = StageMessage(
        case_ids=tuple(rung.case_id for rung in group),
        stage=stages_of(pool)[0].name,
        publish_no=max(rung.publish_no for rung in group),
        deadline_at=min(rung.deadline_at for rung in group),
    )
    # The id says what the message is for: a second ring of the same attempt is the same task in Flower.
    task_id = f"{group[0].case_id.hex}:ring-{message.stage}:{group[0].attempt}"
    _publish(app, pool, message.model_dump(mode="json"), task_id=task_id, priority=PRIORITY[group[0].lane])


def place_in_line(rung: Rung, *, accepted_at: datetime, image_count: int, now_s: float) -> Waiting:
    """Where a prepared case stands in its waiting line, whether intake or the sweeper brings it; `now_s` is the ledger's clock."""
    return Waiting(
        case_id=rung.case_id,
        virtual_deadline=virtual_deadline(rung.lane, accepted_at=accepted_at.timestamp(), joined_at=now_s),
        deadline=rung.deadline_at.timestamp(),
        ready_at=now_s,
        image_count=image_count,
        lane=rung.lane.value,
        publish_no=rung.publish_no,
    )


def ring_delivery(app: Publisher, delivery_id: UUID) -> None:
    """Publish the doorbell of a callback."""
    _publish(app, Pool.DELIVERY, {"delivery_id": delivery_id.hex}, task_id=f"evt:{delivery_id.hex}", priority=6)


def _publish(app: Publisher, pool: Pool, arguments: dict[str, object], *, task_id: str, priority: int) -> None:
    try:
        app.send_task(
            doorbell_of(pool),
            kwargs=arguments,
            task_id=task_id,
            queue=pool.value,
            priority=priority,
            # What Flower shows of the message. Celery would make a careful copy of the arguments for it.
            argsrepr="()",
            kwargsrepr=json.dumps(arguments),
        )
    except OperationalError as error:
        logger().warning("doorbell_not_rung", pool=pool.value, kind=type(error).__name__)
