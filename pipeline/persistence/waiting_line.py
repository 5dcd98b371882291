"""The waiting line in Redis: prepared cases, sorted by virtual deadline, until a batch fires.

Redis is the doorbell and never the truth. A case that is missing here while the ledger says it waits
is put back by the sweeper; a case that is here but not in the ledger is dropped at the claim.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

import redis

from pipeline.errors import QueueUnavailable

SOCKET_TIMEOUT_S = 2.0
CONNECT_TIMEOUT_S = 1.0
HEALTH_CHECK_S = 2
DEVICE_TTL_S = 60

# Puts each member in line once: a second join leaves its place, its age and the formers' count of arrivals alone.
_JOIN = """
local before = redis.call('ZCARD', KEYS[1])
local joined = 0
for i = 1, #ARGV, 3 do
  local member, place, item = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local is_new = redis.call('ZADD', KEYS[1], 'NX', place, member)
  if is_new == 1 or redis.call('HEXISTS', KEYS[2], member) == 0 then
    redis.call('HSET', KEYS[2], member, item)
  end
  joined = joined + is_new
end
if joined > 0 then
  redis.call('PUBLISH', KEYS[3], joined)
end
return before
"""

# Takes the named members, if they are still there, in one step: of two formers with one snapshot, one gets each case.
_TAKE = """
local taken = {}
for i, member in ipairs(ARGV) do
  if redis.call('ZREM', KEYS[1], member) == 1 then
    redis.call('HDEL', KEYS[2], member)
    taken[#taken + 1] = member
  end
end
return taken
"""

# The head of the line with each member's item, and the devices, in one step and one round trip.
_VIEW = """
local head = redis.call('ZRANGE', KEYS[1], 0, ARGV[1], 'WITHSCORES')
local members, scores = {}, {}
for i = 1, #head, 2 do
  members[#members + 1], scores[#scores + 1] = head[i], head[i + 1]
end
local items = #members > 0 and redis.call('HMGET', KEYS[2], unpack(members)) or {}
return {members, scores, items, redis.call('HGETALL', KEYS[3])}
"""


@dataclass(frozen=True, slots=True)
class Waiting:
    """One case in the line."""

    case_id: UUID
    virtual_deadline: float
    """Unix seconds: its place in the line, fixed when it joined."""
    deadline: float
    """Unix seconds: when it is due."""
    ready_at: float
    """Unix seconds: when it joined."""
    image_count: int
    lane: str
    publish_no: int


@dataclass(frozen=True, slots=True)
class LineView:
    """What a former sees: the head of the line and what the devices are doing."""

    waiting: tuple[Waiting, ...]
    busy_until: dict[str, float]
    """Device to the Unix second at which it believes to be free."""


@contextmanager
def queue_errors() -> Iterator[None]:
    """Turn what redis-py raises about the server into `QueueUnavailable`."""
    try:
        yield
    except redis.RedisError as error:
        raise QueueUnavailable("the waiting line did not answer", kind=type(error).__name__) from error


def open_redis(url: str, *, timeout_s: float = SOCKET_TIMEOUT_S) -> "redis.Redis":
    """A client whose every call is bounded; redis-py waits for ever by default."""
    return redis.Redis.from_url(
        url,
        socket_timeout=timeout_s,
        socket_connect_timeout=min(timeout_s, CONNECT_TIMEOUT_S),
        socket_keepalive=True,
        health_check_interval=HEALTH_CHECK_S,
        decode_responses=True,
    )


class WaitingLine:
    """The line of one model and shape bucket."""

    def __init__(self, client: "redis.Redis", *, model: str, bucket: str) -> None:
        self._client = client
        stem = f"secondread:line:{{{model}:{bucket}}}"
        self._order, self._items, self._devices, self.channel = f"{stem}:order", f"{stem}:items", f"{stem}:devices", f"{stem}:joined"
        self._join, self._take, self._view = (client.register_script(script) for script in (_JOIN, _TAKE, _VIEW))

    def join(self, cases: Iterable[Waiting]) -> bool:
        """Put cases in line and wake the formers. Joining again changes nothing.

        Returns
        -------
        Whether the line was empty: then a ring is owed. A line that is not has been rung for already.

        Raises
        ------
        QueueUnavailable
            Redis is away: the ledger still has the cases, and the sweeper brings them.
        """
        members = [part for case in cases for part in (str(case.case_id), repr(case.virtual_deadline), _dump(case))]
        if not members:
            return False
        with queue_errors():
            return bool(self._join(keys=[self._order, self._items, self.channel], args=members) == 0)

    def view(self, *, limit: int, now: float) -> LineView:
        """Look at the head of the line without taking anything."""
        with queue_errors():
            members, scores, items, devices = self._view(keys=[self._order, self._items, self._devices], args=[limit - 1])
        waiting = tuple(_load(*found) for found in zip(members, map(float, scores), items, strict=True) if found[2])
        busy = {device: float(until) for device, until in zip(devices[::2], devices[1::2], strict=True) if float(until) > now}
        return LineView(waiting, busy)

    def take(self, case_ids: Sequence[UUID]) -> list[UUID]:
        """Take these cases out of the line; return those that were still in it, in the order asked."""
        with queue_errors():
            taken = self._take(keys=[self._order, self._items], args=[str(case_id) for case_id in case_ids])
        return [UUID(member) for member in taken]

    def leave(self, case_ids: Sequence[UUID]) -> None:
        """Remove cases that need no reading any more (cancelled, ended)."""
        self.take(case_ids)

    def missing(self, case_ids: Sequence[UUID]) -> list[UUID]:
        """Those of these cases that are not in the line."""
        if not case_ids:
            return []
        with queue_errors():
            scores = self._client.zmscore(self._order, [str(case_id) for case_id in case_ids])
        return [case_id for case_id, score in zip(case_ids, scores, strict=True) if score is None]

    def length(self) -> int:
        """How many cases wait."""
        with queue_errors():
            return int(self._client.zcard(self._order))

    def say_busy(self, device: str, until: float) -> None:
        """Tell the other formers when this device believes to be free; 0 when it is."""
        with queue_errors(), self._client.pipeline(transaction=False) as pipe:
            pipe.hset(self._devices, device, str(until))
            pipe.expire(self._devices, DEVICE_TTL_S)
            pipe.execute()


def _dump(case: Waiting) -> str:
    return json.dumps([case.deadline, case.ready_at, case.image_count, case.lane, case.publish_no])


def _load(member: str, score: float, item: str | bytes) -> Waiting:
    deadline, ready_at, image_count, lane, publish_no = json.loads(item)
    return Waiting(UUID(member), score, deadline, ready_at, image_count, lane, publish_no)
