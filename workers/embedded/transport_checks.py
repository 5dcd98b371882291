"""What must be true of the pools' broker settings, so that no message comes back too early, too late or to the wrong pool."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from workers.embedded.checks import Finding

# What kombu takes where nothing is set: one name for everybody.
_KEYS = {"unacked_key": "unacked", "unacked_index_key": "unacked_index", "unacked_mutex_key": "unacked_mutex"}
_DEFAULT_VISIBILITY_S = 3600.0


@dataclass(frozen=True, slots=True)
class PoolTransport:
    """One pool's broker settings, and what its work needs of them."""

    pool: str
    options: Mapping[str, float | str | bool]
    """Celery's `broker_transport_options`."""
    held_s: float
    """Longest that a worker of the pool holds a message while it works; nothing renews a message that is held."""

    @property
    def visibility_s(self) -> float:
        """Seconds from the fetch of a message until another worker may have it."""
        return float(self.options.get("visibility_timeout", _DEFAULT_VISIBILITY_S))

    def key(self, option: str) -> str:
        """The name that the pool uses in Redis."""
        return str(self.options.get(option, _KEYS[option]))


def check_transports(transports: Sequence[PoolTransport]) -> list[Finding]:
    """Refuse pools that share the keys of unacknowledged messages, and pools whose messages come back while they are worked on."""
    return [*_shared_keys(transports), *_short_visibilities(transports)]


def _shared_keys(transports: Sequence[PoolTransport]) -> Iterator[Finding]:
    for first, second in combinations(transports, 2):
        shared = sorted({first.key(option) for option in _KEYS} & {second.key(option) for option in _KEYS})
        if shared:
            yield Finding(
                "refuse",
                f"The pools {first.pool} and {second.pool} share {', '.join(shared)} in Redis, and the shorter visibility timeout"
                " would win for both: give each pool unacked names of its own.",
            )


def _short_visibilities(transports: Sequence[PoolTransport]) -> Iterator[Finding]:
    for transport in transports:
        if transport.visibility_s <= transport.held_s:
            yield Finding(
                "refuse",
                f"A message of the pool {transport.pool} comes back after {transport.visibility_s:g} s, while its work may take"
                f" {transport.held_s:g} s: shorten the time limits of its stages, or lengthen its visibility timeout.",
            )
