"""Shows Flower what the model thread does: each case's time in inference, and each batch, as tasks.

They are sent as the events of ordinary tasks, by the dispatcher's public interface; no message stands behind them.
"""

import json
import time
from collections.abc import Sequence
from typing import Any

from pipeline.flow import INFER, Pool
from pipeline.persistence.ledger.claims import Claimed
from pipeline.persistence.waiting_line import Waiting
from pipeline.stages.infer import BatchResult
from schemas.message import StageMessage

CASE_TASK = f"{Pool.INFERENCE.value}.{INFER.name}"
BATCH_TASK = f"{Pool.INFERENCE.value}.batch"


class FlowerEvents:
    """`BatchNews` for Flower; silent until it is attached to a worker."""

    def __init__(self) -> None:
        self._consumer: Any = None
        self._begun: dict[str, float] = {}

    def attach(self, consumer: Any) -> None:
        """Use the worker's own event dispatcher from now on."""
        self._consumer = consumer

    def started(self, batch_id: str, facts: dict[str, object], cases: Sequence[Claimed], waiting: Sequence[Waiting]) -> None:
        """Show a batch and its cases as begun; a case was received when it joined the line."""
        self._begun[batch_id] = time.monotonic()
        places = {place.case_id: place for place in waiting}
        for case in cases:
            place = places[case.case_id]
            self._send("task-received", _case_task(case), timestamp=place.ready_at, name=CASE_TASK, kwargs=_arguments(case, place))
            self._send("task-started", _case_task(case))
        self._send("task-received", batch_id, name=BATCH_TASK, kwargs=json.dumps(facts))
        self._send("task-started", batch_id)

    def ended(self, batch_id: str, facts: dict[str, object], cases: Sequence[Claimed], result: BatchResult) -> None:
        """Show them as done, or as failed with a code."""
        runtime_s = time.monotonic() - self._begun.pop(batch_id)
        for case in cases:
            if error := result.failed.get(case.case_id):
                self._send("task-failed", _case_task(case), exception=error.code, traceback="")
            else:
                self._send("task-succeeded", _case_task(case), result="", runtime=runtime_s)
        self._send("task-succeeded", batch_id, result=json.dumps(facts), runtime=runtime_s)

    def _send(self, kind: str, task_id: str, **fields: object) -> None:
        # Asked for each time: after a reconnect the worker has another.
        dispatcher = self._consumer.event_dispatcher if self._consumer else None
        if dispatcher is None or not dispatcher.enabled:
            return
        if kind == "task-received":
            fields = {"args": "()", "retries": 0, "eta": None, **fields}
        dispatcher.send(kind, uuid=task_id, **fields)


def _case_task(case: Claimed) -> str:
    return f"{case.case_id.hex}:{INFER.name}:{case.attempt}"


def _arguments(case: Claimed, place: Waiting) -> str:
    return StageMessage(
        case_id=case.case_id, stage=INFER.name, attempt=case.attempt, publish_no=place.publish_no, deadline_at=case.deadline_at
    ).model_dump_json(exclude_none=True)
