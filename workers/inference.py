"""The inference pool: one process a device. A ring wakes the model thread, which forms the batches.

Beside it, of low priority: a thread that loads and lets go of model versions, and one that runs a version on trial.
"""

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import redis
from celery import Celery

from pipeline import flow
from pipeline.errors import Unavailable
from pipeline.flow import Pool
from pipeline.inference.card import BadModelFolder
from pipeline.inference.device import share_device
from pipeline.inference.devices import require_device
from pipeline.inference.profiling.cards import FOLDER as PERFORMANCE_FOLDER
from pipeline.inference.profiling.prior import WarmUp, known_durations
from pipeline.inference.registry import ModelRegistry
from pipeline.inference.runner import sizes_up_to
from pipeline.observability.log import logger
from workers.former import Former
from workers.model_keeper import ModelKeeper
from workers.pool_process import pool_runtime, serve
from workers.replicas import own_device
from workers.served import ServedModel
from workers.settings import Settings
from workers.shadow import Shadow
from workers.stage_task import PoolRuntime, parse_message
from workers.wiring import models_dir

LISTEN_S = 2.0
MOST_PINGS_UNANSWERED = 1
"""A subscription is only listened to, so a dead connection says nothing: its pings, one every few seconds, remain unanswered."""
HEAR_AGAIN_S = 0.5
DRAIN_S = 20.0
RINGS_AT_ONCE = 2
"""A ring ends at once, so few threads answer them all."""
DEAD_MODEL_THREAD = 70
DEVICE_LOST = 71
"""The process's exit code where the device answers it no more; a new process begins with a new context."""


def register(app: Celery, former: Former) -> None:
    """Give the pool its task."""

    def ring(**arguments: Any) -> None:
        """Wake the model thread: somebody joined an empty line."""
        if parse_message(arguments) is not None:
            former.wake()

    app.task(name=flow.doorbell_of(Pool.INFERENCE))(ring)


def listen(former: Former, client: "redis.Redis") -> None:
    """Wake the former whenever cases join a line; survives servers that come and go, and follows versions that do."""
    while not former.is_draining:
        try:
            with _subscription(client) as channel:
                by_channel = _join(former, channel, {})
                former.wake()
                while not former.is_draining:
                    message = channel.get_message(timeout=LISTEN_S)
                    if channel.health_check_response_counter > MOST_PINGS_UNANSWERED:
                        raise redis.ConnectionError("the subscription is deaf")
                    if message is not None and message["channel"] in by_channel:
                        former.wake(by_channel[message["channel"]], int(message["data"]))
                    by_channel = _join(former, channel, by_channel)
        except (redis.RedisError, Unavailable) as error:
            logger().warning("line_not_heard", kind=type(error).__name__)
            time.sleep(HEAR_AGAIN_S)


def _join(former: Former, channel: Any, heard: dict[str, ServedModel]) -> dict[str, ServedModel]:
    """Listen to the lines that are served now; a new one is rung for until its channel is heard."""
    served = {model.line.channel: model for model in former.lines}
    if new := served.keys() - heard.keys():
        channel.subscribe(*new)
    if gone := heard.keys() - served.keys():
        channel.unsubscribe(*gone)
    return served


def _subscription(client: "redis.Redis") -> Any:
    return client.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]


def main() -> None:
    """Run the pool: `python -m workers.inference`."""
    settings = Settings()
    with pool_runtime(Pool.INFERENCE, settings, connections=4) as runtime:
        former, stop_beside = build(runtime)
        register(runtime.app, former)
        threading.Thread(target=listen, args=(former, runtime.services.redis), name="listener", daemon=True).start()
        former.start()
        try:
            serve(runtime, threads=RINGS_AT_ONCE, on_stop=former.drain)
        finally:
            former.join(DRAIN_S)
            stop_beside()


def build(runtime: PoolRuntime) -> tuple[Former, Callable[[], None]]:
    """Load the models that serve and put the model thread together; the second part ends the threads beside it."""
    services = runtime.services
    registry = _registry(services.settings)
    shadow = Shadow(registry, services.tensors)
    keeper = ModelKeeper(services, registry, shadow, on_death=_die)
    keeper.begin()
    logger().info("models_served", models=list(registry.served), refused=list(registry.refused))
    if not registry.served:
        folder = str(models_dir(services.settings))
        raise BadModelFolder("no model folder passed its checks: the log names each and why", folder=folder)
    shadow.start()
    keeper.start()

    def stop() -> None:
        keeper.close()
        shadow.close()

    return Former(runtime, registry, on_death=_die, on_device_lost=lambda: os._exit(DEVICE_LOST), shadow=shadow), stop


def _registry(settings: Settings) -> ModelRegistry:
    device = own_device(settings)
    require_device(device)
    share_device(device, memory_fraction=settings.device_memory_fraction)
    return ModelRegistry(
        models_dir(settings),
        device=device,
        threads=settings.torch_threads,
        precision=settings.precision,
        warm_up=WarmUp(sizes_up_to(settings.batch_images), partial(known_durations, settings.state_dir / PERFORMANCE_FOLDER)),
    )


def _die() -> None:
    os._exit(DEAD_MODEL_THREAD)


if __name__ == "__main__":
    main()
