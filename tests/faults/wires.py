"""The wires of a run: a proxy before each server."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from urllib.parse import urlsplit, urlunsplit

from tests.faults.proxy import FaultProxy, proxy_for
from tests.faults.servers import Place


@dataclass(frozen=True, slots=True)
class Wires:
    """The two proxies."""

    valkey: FaultProxy
    postgres: FaultProxy

    def through(self, place: Place) -> Place:
        """The same place, reached through the proxies."""
        return replace(place, redis_url=through(place.redis_url, self.valkey), database_url=through(place.database_url, self.postgres))


def through(url: str, proxy: FaultProxy) -> str:
    """The same URL, with the proxy's address."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{proxy.port}"))


@contextmanager
def wires_to(*, redis_url: str, database_url: str) -> Iterator[Wires]:
    """Proxies before the servers of these URLs."""
    with proxy_for(urlsplit(redis_url).port or 0) as valkey, proxy_for(urlsplit(database_url).port or 0) as postgres:
        yield Wires(valkey, postgres)
