"""Three pools, decoupled: seen by Celery's own events and by what goes over the broker's wire."""

import base64
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Thread
from types import TracebackType
from typing import Any, Self
from uuid import UUID, uuid4

import pytest
import redis
from celery import Celery

from tests.acceptance.running import Deployment, Door, Json

pytestmark = pytest.mark.services

SHORTLY_S = 20.0
MAX_ARGUMENT_BYTES = 1_000
MODEL_INPUT_BYTES = 256 * 256
STAGES = ("fetch", "infer", "postprocess")
"""The first stage of each pool, which names the task that a case is there."""
WORKERS = 4
"""Processes of Celery: three pools and the delivery."""
BATCH_TASK = "inference.batch"
_BODY = re.compile(r'"body": "([A-Za-z0-9+/=]+)"')


class Events:
    """Celery's events of the whole deployment, as Flower gets them."""

    def __init__(self, redis_url: str) -> None:
        self.seen: list[Json] = []
        self._changed = Condition()
        self._app = Celery(broker=redis_url, set_as_current=False)
        self._receiver: Any = None
        self._thread = Thread(target=self._capture)

    def __enter__(self) -> Self:
        self._thread.start()
        # A worker tells of its tasks once it is asked to, as Flower does.
        assert len(self._app.control.enable_events(reply=True, timeout=SHORTLY_S, limit=WORKERS)) == WORKERS
        # The workers beat every two seconds; from the first beat on nothing is missed.
        self.wait_until(lambda seen: any(event["type"] == "worker-heartbeat" for event in seen))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._receiver.should_stop = True
        self._thread.join()
        self._app.close()

    def wait_until(self, holds: Callable[[Sequence[Json]], bool]) -> None:
        """Wait until it holds for the events that came."""
        with self._changed:
            assert self._changed.wait_for(lambda: holds(self.seen), SHORTLY_S)

    def _capture(self) -> None:
        with self._app.connection_for_read() as connection:
            self._receiver = self._app.events.Receiver(connection, handlers={"*": self._take})
            self._receiver.capture(limit=None, timeout=None, wakeup=False)

    def _take(self, event: Json) -> None:
        with self._changed:
            self.seen.append(event)
            self._changed.notify_all()


@contextmanager
def commands_of(client: "redis.Redis") -> Iterator[list[str]]:
    """Every command that the broker's server gets inside the block."""
    heard: list[str] = []
    end = f"end-{uuid4().hex}"
    monitor: Any = client.monitor()  # type: ignore[no-untyped-call]

    def listen() -> None:
        for command in monitor.listen():
            if end in command["command"]:
                return
            heard.append(command["command"])

    with monitor:
        thread = Thread(target=listen)
        thread.start()
        try:
            yield heard
        finally:
            client.echo(end)
            thread.join()


def task_ids(cases: Sequence[Json], stages: Sequence[str]) -> set[str]:
    """What the tasks of these cases are called, without the attempt."""
    return {f"{case['case_id'].removeprefix('case_')}:{stage}" for case in cases for stage in stages}


@dataclass(frozen=True, slots=True)
class Burst:
    """Sixteen cases that were sent in one moment, and what was seen of them from outside."""

    cases: Sequence[Json]
    events: Sequence[Json]
    commands: Sequence[str]
    left_in_store: frozenset[Path]
    """Tensors that were not there before."""

    def of(self, kind: str, task: str) -> list[Json]:
        """The events of one kind that belong to these cases' tasks of one stage."""
        wanted = task_ids(self.cases, [task])
        return [event for event in self.events if event["type"] == kind and event["uuid"].rpartition(":")[0] in wanted]


@pytest.fixture(scope="module")
def burst(deployment: Deployment, studies: Sequence[bytes]) -> Burst:
    before = frozenset(deployment.tensor_dir.iterdir())
    with (
        deployment.redis() as client,
        Events(deployment.redis_url) as events,
        commands_of(client) as commands,
        ThreadPoolExecutor(len(studies)) as threads,
    ):
        # Together: all are admitted before the first is prepared, however slowly this machine lets them in.
        with deployment.paused("intake"):
            accepted = list(threads.map(deployment.door.accepted, studies))
        cases = [deployment.door.ended(case["case_id"], within_s=SHORTLY_S) for case in accepted]
        events.wait_until(lambda seen: task_ids(cases, STAGES) <= succeeded(seen))
    # A task has let go of its tensors before it tells that it is done.
    return Burst(cases, events.seen, commands, frozenset(deployment.tensor_dir.iterdir()) - before)


def succeeded(seen: Sequence[Json]) -> set[str]:
    return {event["uuid"].rpartition(":")[0] for event in seen if event["type"] == "task-succeeded"}


def test_the_three_pools_of_a_case_are_three_processes(burst: Burst, deployment: Deployment) -> None:
    places = {stage: {(event["hostname"], event["pid"]) for event in burst.of("task-started", stage)} for stage in STAGES}

    assert all(len(place) == 1 for place in places.values())
    assert len(set.union(*places.values())) == 3
    pids = {pid for place in places.values() for _, pid in place}
    assert pids == {deployment.worker(name).pid for name in ("intake", "inference", "reporting")}


def test_every_stage_of_every_case_ran_once(burst: Burst) -> None:
    for stage in STAGES:
        assert len(burst.of("task-succeeded", stage)) == len(burst.cases)


def test_what_celery_tells_of_a_task_holds_ids_and_times_alone(burst: Burst) -> None:
    told = [json.loads(event["kwargs"]) for stage in STAGES for event in burst.of("task-received", stage)]

    assert len(told) == 3 * len(burst.cases)
    assert {frozenset(arguments) for arguments in told} == {frozenset({"case_id", "attempt", "deadline_at"})}


def test_no_message_exceeds_a_kilobyte_or_holds_an_array(burst: Burst) -> None:
    published = [command for command in burst.commands if command.startswith("LPUSH ")]
    bodies = [base64.b64decode(found[1]) for command in published if (found := _BODY.search(command))]

    # Intake, inference and reporting were rung, for several cases at once where they became ready together.
    assert len(bodies) == len(published) >= 3
    rung: Counter[tuple[str, str]] = Counter()
    for body in bodies:
        positional, arguments, _ = json.loads(body)
        assert len(json.dumps(arguments)) <= MAX_ARGUMENT_BYTES
        assert positional == []
        case_ids = arguments.pop("case_ids")
        assert all(isinstance(value, str | int) for value in arguments.values())
        rung.update((arguments["stage"], UUID(case_id).hex) for case_id in case_ids)
    for case in burst.cases:
        assert all(rung[stage, case["case_id"].removeprefix("case_")] == 1 for stage in ("fetch", "postprocess"))


def test_nothing_that_passes_through_the_broker_is_as_large_as_an_image(burst: Burst) -> None:
    # The model's input is 64 KiB, the image more. Celery sends its events in bundles.
    assert max(map(len, burst.commands)) < MODEL_INPUT_BYTES / 2


def test_sixteen_cases_that_are_sent_together_run_in_at_most_three_batches(burst: Burst) -> None:
    batches = {case["result"]["batch"]["batch_id"]: case["result"]["batch"]["size"] for case in burst.cases}

    assert sum(batches.values()) == len(burst.cases)
    assert len(batches) <= 3


def test_the_batches_are_tasks_of_their_own_in_celerys_events(burst: Burst) -> None:
    batches = {case["result"]["batch"]["batch_id"] for case in burst.cases}
    told = {event["uuid"]: json.loads(event["kwargs"]) for event in burst.events if event.get("name") == BATCH_TASK}

    assert told.keys() >= batches
    assert sum(told[batch_id]["n"] for batch_id in batches) == len(burst.cases)


def test_a_case_finds_its_way_through_all_seven_stages(burst: Burst, door: Door) -> None:
    stages = door.timeline(burst.cases[0]["case_id"])["stages"]

    # No callback was asked for, so the last is empty.
    assert [stage["stage"] for stage in stages if stage["entered_at"]] == [
        *("receive", "fetch", "preprocess", "infer", "postprocess", "report")
    ]
    assert stages[-1]["stage"] == "deliver"


def test_nothing_is_left_in_the_tensor_store(burst: Burst) -> None:
    assert burst.left_in_store == frozenset()
