"""A worker process that notes which message it got, and when; a message that is new to the world it keeps until it is killed."""

import json
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import redis
from celery import Celery

from pipeline.deadline import utc_now
from pipeline.flow import Lane, Pool, doorbell_of
from pipeline.persistence.ledger.claims import Rung
from tests.acceptance.running import eventually
from workers.app import unacked_index
from workers.doorbell import ring, ring_delivery
from workers.pool_process import pool_runtime, serve
from workers.settings import Settings

CASE = UUID(int=42)


@dataclass(frozen=True, slots=True)
class Note:
    """One message, as a worker got it."""

    pid: int
    at: float
    """Unix seconds."""
    is_redelivered: bool


@dataclass(frozen=True, slots=True)
class Taken:
    """A message in a worker's hands, and where its next receiver will write."""

    first: Note
    fetched_at: float
    """Unix seconds, as the worker wrote it down in Redis."""
    tag: str
    notes: Path


def serve_witness(pool: Pool, notes: Path) -> None:
    """Serve a pool with the product's own process, application and settings; only the task is ours."""
    with pool_runtime(pool, Settings(), connections=1) as runtime:

        def note(task: Any, **_message: Any) -> None:
            said = Note(os.getpid(), time.time(), bool(task.request.delivery_info.get("redelivered")))
            with notes.open("a", encoding="ascii") as sink:
                sink.write(json.dumps(asdict(said)) + "\n")
            if not said.is_redelivered:
                threading.Event().wait()

        runtime.app.task(name=doorbell_of(pool), bind=True)(note)
        serve(runtime, threads=1)


def ring_witness(app: Celery, pool: Pool) -> None:
    """Send the pool one message of the product's own kind."""
    if pool is Pool.DELIVERY:
        ring_delivery(app, CASE)
    else:
        ring(app, pool, [Rung(CASE, 1, 0, Lane.ROUTINE, utc_now() + timedelta(seconds=30))])


def await_notes(notes: Path, count: int, *, within_s: float) -> Sequence[Note]:
    """What was noted, once there is so much of it."""
    found = eventually(lambda: read if len(read := _read(notes)) >= count else [], within_s=within_s)
    assert found, f"{len(_read(notes))} of {count} messages came to {notes.stem}"
    return found


def _read(notes: Path) -> list[Note]:
    if not notes.exists():
        return []
    return [Note(**json.loads(line)) for line in notes.read_text(encoding="ascii").splitlines()]


def taken_from(client: "redis.Redis", pool: Pool, note: Note, notes: Path) -> Taken:
    """The one message that a pool's workers hold now."""
    held = cast(list[tuple[bytes, float]], client.zrange(unacked_index(pool), 0, -1, withscores=True))
    ((tag, fetched_at),) = held
    return Taken(note, fetched_at, tag.decode(), notes)
