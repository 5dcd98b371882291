"""Shows Flower each case in each pool, and each batch, as tasks.

A doorbell may be for several cases, and a batch is for no doorbell at all. So their times are sent as the events of ordinary
tasks, by the dispatcher's public interface; no message stands behind them.
"""

import json
import time
from collections.abc import Mapping
from typing import Any

from pipeline.flow import Pool, case_task_of, stages_of
from pipeline.persistence.ledger.claims import Claimed

BATCH_TASK = f"{Pool.INFERENCE.value}.batch"


class TaskEvents:
    """The events of one worker process; silent until they are attached to it, and while nobody has asked the worker for task events."""

    def __init__(self) -> None:
        self._consumer: Any = None

    def attach(self, consumer: Any) -> None:
        """Use the worker's own event dispatcher from now on."""
        self._consumer = consumer

    def began(self, case: Claimed, pool: Pool, *, received_at: float | None = None) -> None:
        """Show that a case's work in a pool begins; `received_at` (Unix seconds) is when it came there, if not now."""
        arguments = {"case_id": str(case.case_id), "attempt": case.attempt, "deadline_at": case.deadline_at.isoformat()}
        name, task_id = case_task_of(pool), _case_task_id(case, pool)
        self._send("task-received", task_id, timestamp=received_at or time.time(), name=name, kwargs=json.dumps(arguments))
        self._send("task-started", task_id)

    def ended(self, case: Claimed, pool: Pool, *, runtime_s: float, code: str | None = None) -> None:
        """Show that it is over: done, or with a code."""
        if code is None:
            self._send("task-succeeded", _case_task_id(case, pool), result="", runtime=runtime_s)
        else:
            self._send("task-failed", _case_task_id(case, pool), exception=code, traceback="")

    def batch_began(self, batch_id: str, facts: Mapping[str, object]) -> None:
        """Show that a batch has fired."""
        self._send("task-received", batch_id, name=BATCH_TASK, kwargs=json.dumps(facts))
        self._send("task-started", batch_id)

    def batch_ended(self, batch_id: str, facts: Mapping[str, object], *, runtime_s: float) -> None:
        """Show that it is over."""
        self._send("task-succeeded", batch_id, result=json.dumps(facts), runtime=runtime_s)

    def _send(self, kind: str, task_id: str, **fields: object) -> None:
        # Asked for each time: after a reconnect the worker has another.
        dispatcher = self._consumer.event_dispatcher if self._consumer else None
        if dispatcher is None or not dispatcher.enabled or (dispatcher.groups and "task" not in dispatcher.groups):
            return
        if kind == "task-received":
            fields = {"args": "()", "retries": 0, "eta": None, **fields}
        dispatcher.send(kind, uuid=task_id, **fields)


def _case_task_id(case: Claimed, pool: Pool) -> str:
    return f"{case.case_id.hex}:{stages_of(pool)[0].name}:{case.attempt}"
