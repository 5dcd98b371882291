"""The inference pool: one process a device. Each case's ring is an ordinary task; the model thread forms the batches."""

import json
import threading
import time
from typing import Any

import redis
from celery import Celery, Task

from pipeline import flow
from pipeline.flow import Pool
from pipeline.inference.registry import ModelRegistry
from pipeline.observability.log import logger
from workers.app import unacked_index
from workers.former import Former
from workers.pool_process import pool_runtime, serve
from workers.settings import Settings
from workers.stage_task import PoolRuntime, parse_message
from workers.wiring import models_dir

BATCH_TASK = "inference.batch"
"""The name under which Flower lists batches."""
LISTEN_S = 5.0
RENEW_EVERY_S = 2.0
DRAIN_S = 20.0


class BatchEvents:
    """Tells Flower about batches with the events of an ordinary task: public API, no message behind it."""

    def __init__(self) -> None:
        self._dispatcher: Any = None

    def attach(self, consumer: Any) -> None:
        """Use the worker's own event dispatcher from now on."""
        self._dispatcher = consumer.event_dispatcher

    def __call__(self, event: str, batch_id: str, facts: dict[str, object]) -> None:
        """Send one event; Flower shows the facts as the batch's arguments."""
        if self._dispatcher is None or not self._dispatcher.enabled:
            return
        if event == "started":
            self._dispatcher.send("task-received", uuid=batch_id, name=BATCH_TASK, args="()", kwargs=json.dumps(facts), retries=0, eta=None)
            self._dispatcher.send("task-started", uuid=batch_id)
        else:
            self._dispatcher.send("task-succeeded", uuid=batch_id, result=json.dumps(facts), runtime=facts["runtime"])


class Rings:
    """The Celery messages of the cases that wait here: their place among the unacknowledged is renewed.

    Without it the broker would hand a ring to another worker after the visibility timeout, counted from its fetch.
    """

    def __init__(self, client: "redis.Redis") -> None:
        self._client = client
        self._tags: set[str] = set()
        self._lock = threading.Lock()

    def hold(self, tag: str) -> None:
        """Renew this message until it is let go."""
        with self._lock:
            self._tags.add(tag)

    def let_go(self, tag: str) -> None:
        """Stop renewing."""
        with self._lock:
            self._tags.discard(tag)

    def renew(self) -> None:
        """Say for all of them that somebody is at work."""
        with self._lock:
            scores = dict.fromkeys(self._tags, time.time())
        if scores:
            self._client.zadd(unacked_index(Pool.INFERENCE), scores, xx=True)


def register(app: Celery, former: Former, rings: Rings) -> None:
    """Give the pool its task."""

    def infer_case(self: Task, **arguments: Any) -> None:
        """Ring: this case is ready. Stays until the case left the line."""
        message = parse_message(arguments)
        if message is None:
            return
        tag = self.request.properties["delivery_tag"]
        rings.hold(tag)
        try:
            former.answer(message.case_id)
        finally:
            rings.let_go(tag)

    app.task(bind=True, name=flow.doorbell_of(Pool.INFERENCE))(infer_case)


def listen(former: Former, client: "redis.Redis", rings: Rings) -> None:
    """Wake the former when cases join a line, and renew the rings; survives a Redis that comes and goes."""
    by_channel = {model.line.channel: model for model in former.lines}
    while True:
        try:
            with _subscription(client) as channel:
                channel.subscribe(*by_channel)
                former.wake()
                renewed_at = time.monotonic()
                while True:
                    message = channel.get_message(timeout=RENEW_EVERY_S if former.held_cases() else LISTEN_S)
                    if message is not None:
                        former.wake(by_channel[message["channel"]], int(message["data"]))
                    if time.monotonic() - renewed_at >= RENEW_EVERY_S:
                        rings.renew()
                        renewed_at = time.monotonic()
        except redis.RedisError as error:
            logger().warning("line_not_heard", kind=type(error).__name__)
            time.sleep(0.5)


def _subscription(client: "redis.Redis") -> Any:
    return client.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]


def main() -> None:
    """Run the pool: `python -m workers.inference`."""
    settings = Settings()
    with pool_runtime(Pool.INFERENCE, settings, connections=3) as runtime:
        former, rings, events = build(runtime)
        register(runtime.app, former, rings)
        threading.Thread(target=listen, args=(former, runtime.services.redis, rings), name="listener", daemon=True).start()
        former.start()
        try:
            serve(runtime, threads=2 * settings.batch_images, on_ready=events.attach, on_stop=former.drain)
        finally:
            former.join(DRAIN_S)


def build(runtime: PoolRuntime) -> tuple[Former, Rings, BatchEvents]:
    """Load the models and put the model thread together."""
    settings = runtime.services.settings
    registry = ModelRegistry(models_dir(settings), device=settings.device, threads=settings.torch_threads)
    registry.load()
    logger().info("models_served", models=list(registry.served), refused=list(registry.refused))
    events = BatchEvents()
    return Former(runtime, registry, news=events), Rings(runtime.services.redis), events


if __name__ == "__main__":
    main()
