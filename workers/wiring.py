"""Builds what every process shares from the settings: the ledger, Redis, the stores, the model cards."""

import hashlib
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis

from pipeline.callbacks.destination import Destination
from pipeline.inference.card import SHIPPED_MODELS, Cards
from pipeline.inference.shelf import CardShelf
from pipeline.persistence.ledger.clock import LedgerClock
from pipeline.persistence.ledger.engine import Ledger, open_ledger
from pipeline.persistence.sources import NamedSource
from pipeline.persistence.uploads import ObjectPlace
from pipeline.persistence.waiting_line import SOCKET_TIMEOUT_S, WaitingLine, open_redis
from pipeline.tensors.shared_memory import SharedMemoryStore
from pipeline.tensors.store import TensorStore
from workers.settings import Settings


@dataclass(frozen=True, slots=True)
class Services:
    """What a process works with. Built once; closed when the process ends."""

    settings: Settings
    worker: str
    """This process, as claims and Flower name it."""
    ledger: Ledger
    clock: LedgerClock
    """What every moment that another process compares is told by; the host's own clock may be wrong."""
    redis: "redis.Redis"
    tensors: TensorStore
    uploads: ObjectPlace
    sources: Mapping[str, NamedSource]
    cards: Cards

    def line(self, model: str) -> WaitingLine:
        """The waiting line of a model; its input size is its shape bucket."""
        card, _ = self.cards[model]
        return WaitingLine(self.redis, model=model, bucket=str(card.input.side_px))


class NotConfigured(ValueError):
    """A URL is missing that `secondread up` would have set."""


def worker_name(role: str) -> str:
    """`role@host-pid`: unique while the process lives."""
    return f"{role}@{socket.gethostname()}-{os.getpid()}"


def models_dir(settings: Settings) -> Path:
    """The folder of model folders."""
    return settings.models_dir or SHIPPED_MODELS


def tensor_dir(settings: Settings) -> Path:
    """The tensor store's folder: in memory, one for each state folder, so that two deployments on a host do not meet."""
    if settings.tensor_dir is not None:
        return settings.tensor_dir
    name = hashlib.sha256(str(settings.state_dir.resolve()).encode()).hexdigest()[:16]
    return Path("/dev/shm") / f"secondread-{name}"  # noqa: S108 - shared memory is the point; the folder is made 0700


def uploads_url(settings: Settings) -> str:
    """Where received instances and pictures are kept."""
    return settings.uploads_url or str(settings.state_dir / "uploads")


def public_url(settings: Settings) -> str:
    """The HTTP door as callers reach it."""
    return settings.public_url or f"http://{settings.gateway_host}:{settings.gateway_port}"


def webhook_policy(settings: Settings) -> Destination:
    """Where callbacks may go: one rule for the door that registers endpoints and the pool that delivers."""
    return Destination(allow_networks=settings.webhook_allow_networks, allow_http=settings.webhook_allow_http)


def secret_of(settings: Settings, name: str) -> str:
    """A connection URL from the settings.

    Raises
    ------
    NotConfigured
        It is not set, and no embedded server stands in.
    """
    value = getattr(settings, name)
    if value is None:
        raise NotConfigured(f"set SECONDREAD_{name.upper()}, or start everything with `secondread up`")
    text: str = value.get_secret_value()
    return text


@contextmanager
def open_services(settings: Settings, *, role: str, connections: int = 5, redis_timeout_s: float = SOCKET_TIMEOUT_S) -> Iterator[Services]:
    """Build the services of one process and close them at its end."""
    ledger = open_ledger(secret_of(settings, "database_url"), connections=connections, application=f"secondread {role}")
    client = open_redis(secret_of(settings, "redis_url"), timeout_s=redis_timeout_s)
    uploads = ObjectPlace(uploads_url(settings))
    # One source that stands still holds half of the intake at most.
    most_readers = max(1, settings.intake_threads // 2)
    sources = {name: NamedSource(url, most_readers=most_readers) for name, url in settings.sources.items()}
    try:
        yield Services(
            settings=settings,
            worker=worker_name(role),
            ledger=ledger,
            clock=LedgerClock(ledger),
            redis=client,
            tensors=SharedMemoryStore(tensor_dir(settings), capacity_bytes=settings.tensor_capacity_bytes),
            uploads=uploads,
            sources=sources,
            cards=CardShelf(models_dir(settings)),
        )
    finally:
        uploads.close()
        for source in sources.values():
            source.close()
        client.close()
        ledger.close()
