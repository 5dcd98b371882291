"""The waiting line in Redis: prepared cases, sorted by virtual deadline, until a batch fires.

Redis is the doorbell and never the truth. A case that is missing here while the ledger says it waits
is put back by the sweeper; a case that is here but not in the ledger is dropped at the claim.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import redis

from pipeline.errors import QueueUnavailable
from pipeline.flow import Lane

SOCKET_TIMEOUT_S = 2.0
CONNECT_TIMEOUT_S = 1.0
HEALTH_CHECK_S = 2
DEVICE_TTL_S = 60
TURN_S = 1.5
"""How long a former that does not look again keeps the turn: one that waits for company looks once a second."""
IDLE_SAID_S = 1.0
"""How often a device that looks says that it is idle; one that was not heard for three times as long has gone."""

# Puts each member in line once: a second join leaves its place, its age and the formers' count of arrivals alone. A case that was
# put off meanwhile is no longer what stands there in its name: it takes its new place.
_JOIN = """
local before = redis.call('ZCARD', KEYS[1])
local joined = 0
for i = 1, #ARGV, 4 do
  local member, place, item, is_put_off = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3] == '1'
  local is_new = redis.call('ZADD', KEYS[1], is_put_off and 'CH' or 'NX', place, member)
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

# Takes cases for a former whose turn it is, says that its device is busy, and passes the turn on: in one step. A turn that was
# lost meanwhile takes nothing: what was decided, was decided on a line that has changed.
_TAKE = """
if redis.call('GET', KEYS[4]) ~= ARGV[1] then
  return false
end
local taken = {}
for i = 3, #ARGV do
  if redis.call('ZREM', KEYS[1], ARGV[i]) == 1 then
    redis.call('HDEL', KEYS[2], ARGV[i])
    taken[#taken + 1] = ARGV[i]
  end
end
if ARGV[2] ~= '' then
  redis.call('HSET', KEYS[3], ARGV[1], ARGV[2])
  redis.call('EXPIRE', KEYS[3], DEVICE_TTL_S)
end
redis.call('DEL', KEYS[4])
if redis.call('EXISTS', KEYS[1]) == 1 then
  redis.call('PUBLISH', KEYS[5], 0)
end
return taken
"""

_NEXT_FORMER = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  if redis.call('EXISTS', KEYS[2]) == 1 then
    redis.call('PUBLISH', KEYS[3], 0)
  end
end
"""

_LEAVE = """
for i, member in ipairs(ARGV) do
  redis.call('ZREM', KEYS[1], member)
  redis.call('HDEL', KEYS[2], member)
end
"""

# The head of the line with each member's item, and the devices, in one step and one round trip. A device that looks for itself is
# idle, and takes the turn where somebody waits; while another has it, it is told for how long at most.
_VIEW = """
local device, now = ARGV[2], tonumber(ARGV[3])
if device ~= '' then
  local said = tonumber(redis.call('HGET', KEYS[3], device) or 0)
  if said >= 0 or now + said > IDLE_SAID_S or now + said < 0 then
    redis.call('HSET', KEYS[3], device, -now)
    redis.call('EXPIRE', KEYS[3], DEVICE_TTL_S)
  end
  local holder = redis.call('GET', KEYS[4])
  if holder and holder ~= device then
    return redis.call('PTTL', KEYS[4])
  end
end
local head = redis.call('ZRANGE', KEYS[1], 0, ARGV[1], 'WITHSCORES')
local members, scores = {}, {}
for i = 1, #head, 2 do
  members[#members + 1], scores[#scores + 1] = head[i], head[i + 1]
end
if device ~= '' and #members > 0 then
  redis.call('SET', KEYS[4], device, 'PX', TURN_MS)
end
local items = #members > 0 and redis.call('HMGET', KEYS[2], unpack(members)) or {}
return {members, scores, items, redis.call('HGETALL', KEYS[3])}
"""


def _script(client: "redis.Redis", lua: str) -> Any:
    for name, value in (("DEVICE_TTL_S", DEVICE_TTL_S), ("IDLE_SAID_S", IDLE_SAID_S), ("TURN_MS", round(TURN_S * 1000))):
        lua = lua.replace(name, str(value))
    return client.register_script(lua)


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
    idle: frozenset[str] = frozenset()
    """Devices that looked at the line a moment ago, and so run nothing."""


@dataclass(frozen=True, slots=True)
class AnothersTurn:
    """Another former decides at present; the line is to be looked at again after so long, or when something happens."""

    seconds: float


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
        self.name = f"{model}:{bucket}"
        stem = f"secondread:line:{{{self.name}}}"
        names = ("order", "items", "devices", "turn", "joined")
        self._order, self._items, self._devices, self._turn, self.channel = (f"{stem}:{name}" for name in names)
        scripts = (_JOIN, _TAKE, _VIEW, _LEAVE, _NEXT_FORMER)
        self._join, self._take, self._view, self._leave, self._pass_on = (_script(client, lua) for lua in scripts)

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
        members = [part for case in cases for part in _arguments(case)]
        if not members:
            return False
        with queue_errors():
            return bool(self._join(keys=[self._order, self._items, self.channel], args=members) == 0)

    def view(self, *, limit: int, now: float) -> LineView:
        """Look at the head of the line without any part in it."""
        with queue_errors():
            found = self._view(keys=[self._order, self._items, self._devices, self._turn], args=[limit - 1, "", repr(now)])
        return _line_view(found, now)

    def look(self, device: str, *, limit: int, now: float) -> LineView | AnothersTurn:
        """Look for an idle device, which has the turn from now on if anybody waits: one former decides about a line at a time.

        Whoever has the turn keeps it by looking again within `TURN_S`, and passes it on by taking a batch.
        """
        with queue_errors():
            found = self._view(keys=[self._order, self._items, self._devices, self._turn], args=[limit - 1, device, repr(now)])
        return AnothersTurn(max(found, 0) / 1000) if isinstance(found, int) else _line_view(found, now)

    def take(self, device: str, case_ids: Sequence[UUID], *, busy_until: float | None) -> list[UUID] | None:
        """Take these cases out of the line, say until when the device believes to be busy, and pass the turn on.

        Returns
        -------
        Those that were still in line, in the order asked; None, and nothing is taken, where the turn was lost.
        """
        until = "" if busy_until is None else repr(busy_until)
        with queue_errors():
            taken = self._take(
                keys=[self._order, self._items, self._devices, self._turn, self.channel], args=[device, until, *map(str, case_ids)]
            )
        return None if taken is None else [UUID(member) for member in taken]

    def pass_on(self, device: str) -> None:
        """Let another former decide, if it was this one's turn."""
        with queue_errors():
            self._pass_on(keys=[self._turn, self._order, self.channel], args=[device])

    def leave(self, case_ids: Sequence[UUID]) -> None:
        """Remove cases that need no reading any more (cancelled, ended)."""
        with queue_errors():
            self._leave(keys=[self._order, self._items], args=[str(case_id) for case_id in case_ids])

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
        """Tell the other formers of this line when a device that serves another line as well believes to be free."""
        with queue_errors(), self._client.pipeline(transaction=False) as pipe:
            pipe.hset(self._devices, device, repr(until))
            pipe.expire(self._devices, DEVICE_TTL_S)
            pipe.execute()


def _line_view(found: Sequence[Any], now: float) -> LineView:
    """Read the answer of `_VIEW`. A device's moment is when it will be free; below zero, since when it was last seen idle."""
    members, scores, items, devices = found
    said = {device: float(moment) for device, moment in zip(devices[::2], devices[1::2], strict=True)}
    return LineView(
        waiting=tuple(_load(*one) for one in zip(members, map(float, scores), items, strict=True) if one[2]),
        busy_until={device: moment for device, moment in said.items() if moment > now},
        idle=frozenset(device for device, moment in said.items() if moment < 0 and abs(now + moment) < 3 * IDLE_SAID_S),
    )


def _arguments(case: Waiting) -> tuple[str, str, str, int]:
    return str(case.case_id), repr(case.virtual_deadline), _dump(case), int(case.lane == Lane.COMPENSATION)


def _dump(case: Waiting) -> str:
    return json.dumps([case.deadline, case.ready_at, case.image_count, case.lane, case.publish_no])


def _load(member: str, score: float, item: str | bytes) -> Waiting:
    deadline, ready_at, image_count, lane, publish_no = json.loads(item)
    return Waiting(UUID(member), score, deadline, ready_at, image_count, lane, publish_no)
