"""The sweeper's questions: which doorbells are probably gone, and which claims nobody holds any more.

A message is never judged by its age alone: a long queue is not a lost message. Signs of a loss:
later doorbells of the same pool were answered while this one, published well before them, was not;
Redis was emptied or replaced; a lease ran out.
"""

import json
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text

from pipeline.cases.states import POOL_STATES
from pipeline.flow import Lane, Pool
from pipeline.persistence.ledger.claims import MAX_TRIES, Rung, rung
from pipeline.persistence.ledger.engine import Ledger, run

OVERTAKEN_BY = 50
"""Publish numbers that may overtake a message without it being lost: threads and workers reorder."""
OVERTAKEN_AFTER_S = 3.0
SETTLE_S = 1.0
"""A doorbell younger than this may still be on its way to Redis."""
LANES = tuple(Lane)
"""In the order in which a queue serves them."""
RINGS_A_ROUND = 50
RINGS_A_CLAIM = 0.1
RECENT_ROUNDS = 10

_RING = """
WITH chosen AS ({chosen} FOR UPDATE SKIP LOCKED), moved AS (
    UPDATE cases SET publish_no = nextval('publish_no'), published_at = clock_timestamp()
    FROM chosen WHERE cases.id = chosen.id
    RETURNING cases.id, cases.publish_no, cases.attempt, cases.lane, cases.deadline_at
)
SELECT * FROM moved
"""

_OVERTAKEN = text(
    _RING.format(
        chosen="""
    SELECT id FROM cases WHERE state = :queued AND ended_at IS NULL
      AND publish_no < CAST(CAST(:seen_nos AS jsonb) ->> lane AS bigint) - CAST(:slack AS bigint)
      AND published_at < clock_timestamp() - make_interval(secs => :after_s) AND due_at <= published_at AND tries < :max_tries
    ORDER BY publish_no LIMIT :limit"""
    )
)
_ALL_QUEUED = text(
    _RING.format(
        chosen="""
    SELECT id FROM cases WHERE state = :queued AND ended_at IS NULL AND tries < :max_tries AND publish_no <= CAST(:up_to_no AS bigint)
      AND published_at < clock_timestamp() - make_interval(secs => :settle_s) AND due_at <= published_at
    ORDER BY publish_no LIMIT :limit"""
    )
)
# A token of the pool's retry budget each, taken in the statement that rings: two sweepers cannot spend one twice. What was given
# back free of charge has had no try: it is rung for nothing.
_DUE = text("""
WITH budget AS (
    SELECT CAST(floor(tokens) AS bigint) AS whole FROM retry_budgets WHERE pool = :pool FOR UPDATE
), untried AS (
    SELECT id FROM cases WHERE state = :queued AND ended_at IS NULL AND due_at > published_at AND due_at <= clock_timestamp()
      AND tries = 0
    ORDER BY due_at LIMIT CAST(:limit AS bigint) FOR UPDATE SKIP LOCKED
), retries AS (
    SELECT id FROM cases WHERE state = :queued AND ended_at IS NULL AND due_at > published_at AND due_at <= clock_timestamp()
      AND tries BETWEEN 1 AND CAST(:max_tries AS integer) - 1
    ORDER BY due_at LIMIT LEAST(CAST(:limit AS bigint) - (SELECT count(*) FROM untried), COALESCE((SELECT whole FROM budget), 0))
    FOR UPDATE SKIP LOCKED
), chosen AS (
    SELECT id FROM untried UNION ALL SELECT id FROM retries
), moved AS (
    UPDATE cases SET publish_no = nextval('publish_no'), published_at = clock_timestamp()
    FROM chosen WHERE cases.id = chosen.id
    RETURNING cases.id, cases.publish_no, cases.attempt, cases.lane, cases.deadline_at
), paid AS (
    UPDATE retry_budgets SET tokens = tokens - (SELECT count(*) FROM retries) WHERE pool = :pool
)
SELECT * FROM moved
""")
_EXPIRED = text("""
WITH chosen AS (
    SELECT id FROM cases WHERE state = :claimed AND ended_at IS NULL AND lease_until < clock_timestamp() AND tries < :max_tries
    ORDER BY lease_until LIMIT :limit FOR UPDATE SKIP LOCKED
), moved AS (
    UPDATE cases SET state = :queued, strikes = strikes + 1, claimed_by = NULL, lease_until = NULL, changed_at = clock_timestamp(),
           version = version + 1,
           publish_no = nextval('publish_no'), published_at = now(), due_at = now()
    FROM chosen WHERE cases.id = chosen.id
    RETURNING cases.*
), logged AS (
    INSERT INTO case_events (case_id, version, left_state, entered_state, attempt, code, at)
    SELECT id, version, :claimed, :queued, attempt, 'lease-expired', changed_at FROM moved
)
SELECT id, publish_no, attempt, lane, deadline_at FROM moved
""")
_SPENT = text("""
SELECT id, attempt, state FROM cases
WHERE ended_at IS NULL AND tries >= :max_tries AND (state = :queued OR (state = :claimed AND lease_until < clock_timestamp()))
LIMIT :limit
""")
_COUNTS = text("""
SELECT state, count(*) AS case_count, EXTRACT(EPOCH FROM clock_timestamp() - min(changed_at)) AS oldest_s
FROM cases WHERE ended_at IS NULL GROUP BY state
""")
_SEEN = text("""
SELECT entered_state, lane, max(case_events.id) AS last_id, max(case_events.publish_no) AS publish_no, count(*) AS event_count,
       count(*) FILTER (WHERE code IS NULL) AS first_count, count(*) FILTER (WHERE code = 'lease-expired') AS lapsed_count
FROM case_events JOIN cases ON cases.id = case_id
WHERE case_events.id > :after_id GROUP BY entered_state, lane
""")
_NEWEST_NO = text("SELECT last_value FROM publish_no")
_LAST_EVENT = text("SELECT COALESCE(max(id), 0) AS last_id FROM case_events")
_WAITING = text("""
SELECT id, publish_no, attempt, lane, deadline_at, accepted_at, work->'prepared'->>'model' AS model,
       CAST(work->'prepared'->'model_input'->'shape'->>0 AS integer) AS image_count
FROM cases
WHERE state = :queued AND ended_at IS NULL AND tries < :max_tries AND due_at <= published_at
  AND published_at < clock_timestamp() - make_interval(secs => :settle_s) AND publish_no > CAST(:after_no AS bigint)
ORDER BY publish_no LIMIT :limit
""")
_PURGE_KEYS = text("DELETE FROM idempotency_keys WHERE created_at < clock_timestamp() - make_interval(hours => :hours)")


def ring_overtaken(ledger: Ledger, pool: Pool, *, seen_nos: Mapping[Lane, int], limit: int) -> list[Rung]:
    """Queued cases whose doorbell was overtaken, with fresh publish numbers.

    `seen_nos` is the highest publish number that the pool has answered in each lane. A case is judged by its own lane and
    by those that are served after it: an urgent message passes a routine one by right.
    """
    by_lane = {lane.value: max((seen_nos.get(later, 0) for later in LANES[place:]), default=0) for place, lane in enumerate(LANES)}
    return _ring(ledger, _OVERTAKEN, pool, limit, seen_nos=json.dumps(by_lane), slack=OVERTAKEN_BY, after_s=OVERTAKEN_AFTER_S)


@dataclass(frozen=True, slots=True)
class Seen:
    """What was claimed since a sweeper last looked."""

    last_id: int
    """The newest event: where to read on."""
    publish_nos: Mapping[Pool, Mapping[Lane, int]]
    """The highest publish number that each pool has answered in each lane; where nothing was claimed there is no entry."""
    claim_count: int
    first_attempts: Mapping[Pool, int]
    """Claims that were not a case's second in its pool."""
    lapses: Mapping[Pool, int]
    """Leases that ran out of cases that had a try left."""


def newest_seen(ledger: Ledger, *, after_id: int) -> Seen:
    """Read the events after one."""
    rows = run(ledger.relaxed, _SEEN, after_id=after_id)
    pools = {states.claimed.value: pool for pool, states in POOL_STATES.items()}
    claims = [row for row in rows if row.entered_state in pools]
    publish_nos: defaultdict[Pool, dict[Lane, int]] = defaultdict(dict)
    first_attempts, lapses = Counter[Pool](), Counter[Pool]()
    for row in claims:
        publish_nos[pools[row.entered_state]][Lane(row.lane)] = row.publish_no or 0
        first_attempts[pools[row.entered_state]] += row.first_count
    queues = {states.queued.value: pool for pool, states in POOL_STATES.items()}
    for row in rows:
        if row.entered_state in queues:
            lapses[queues[row.entered_state]] += row.lapsed_count
    return Seen(
        last_id=max((row.last_id for row in rows), default=after_id),
        publish_nos=publish_nos,
        claim_count=sum(row.event_count for row in claims),
        first_attempts=first_attempts,
        lapses=+lapses,
    )


def newest_publish_no(ledger: Ledger) -> int:
    """The number of the doorbell that was published last."""
    newest: int = run(ledger.relaxed, _NEWEST_NO)[0].last_value
    return newest


class RingBudget:
    """How many doorbells may be rung again: in each round the larger of 50 and a tenth of the claims of a recent round.

    Rounds come once a second at most. So a fault adds a tenth to the load, or what any machine bears.
    """

    def __init__(self) -> None:
        self._claim_counts: deque[int] = deque(maxlen=RECENT_ROUNDS)

    def next_round(self, claim_count: int) -> int:
        """Note the claims since the last round, and give the rings of this one."""
        self._claim_counts.append(claim_count)
        return max(RINGS_A_ROUND, int(RINGS_A_CLAIM * sum(self._claim_counts) / len(self._claim_counts)))


def last_event_id(ledger: Ledger) -> int:
    """Where a sweeper starts to read."""
    last: int = run(ledger.relaxed, _LAST_EVENT)[0].last_id
    return last


@dataclass(frozen=True, slots=True)
class AwaitsInference:
    """A case that should stand in a waiting line, with what it needs to join."""

    rung: Rung
    model: str
    image_count: int
    accepted_at: datetime


def awaiting_inference(ledger: Ledger, *, after_no: int, limit: int) -> list[AwaitsInference]:
    """Cases that should be in a waiting line by now, by publish number, from the one after `after_no`."""
    queued = POOL_STATES[Pool.INFERENCE].queued.value
    rows = run(ledger.relaxed, _WAITING, queued=queued, max_tries=MAX_TRIES, after_no=after_no, limit=limit, settle_s=SETTLE_S)
    return [AwaitsInference(rung(row), row.model, row.image_count, row.accepted_at) for row in rows]


def ring_all(ledger: Ledger, pool: Pool, *, up_to_no: int, limit: int) -> list[Rung]:
    """All queued cases of a pool that were published up to a number, for when Redis was emptied or replaced."""
    return _ring(ledger, _ALL_QUEUED, pool, limit, up_to_no=up_to_no, settle_s=SETTLE_S)


def ring_due(ledger: Ledger, pool: Pool, *, limit: int) -> list[Rung]:
    """Cases that were given back with a delay that is over now, as far as the pool's retry budget reaches."""
    return _ring(ledger, _DUE, pool, limit, pool=pool.value)


def free_expired(ledger: Ledger, pool: Pool, *, limit: int) -> list[Rung]:
    """Put cases back whose worker has not renewed its lease, with fresh publish numbers: a strike each."""
    states = POOL_STATES[pool]
    rows = run(ledger.relaxed, _EXPIRED, claimed=states.claimed.value, queued=states.queued.value, max_tries=MAX_TRIES, limit=limit)
    return [rung(row) for row in rows]


@dataclass(frozen=True, slots=True)
class Spent:
    """A case that has cost all its tries in one pool."""

    case_id: UUID
    attempt: int
    state: str


def find_spent(ledger: Ledger, pool: Pool, *, limit: int) -> list[Spent]:
    """Cases that no worker may claim again: the sweeper ends them as quarantined."""
    states = POOL_STATES[pool]
    rows = run(ledger.relaxed, _SPENT, claimed=states.claimed.value, queued=states.queued.value, max_tries=MAX_TRIES, limit=limit)
    return [Spent(row.id, row.attempt, row.state) for row in rows]


def open_counts(ledger: Ledger) -> Sequence[tuple[str, int, float]]:
    """Open cases by state: how many, and the age in seconds of the one that has been there longest."""
    return [(row.state, row.case_count, float(row.oldest_s)) for row in run(ledger.relaxed, _COUNTS)]


def purge_keys(ledger: Ledger, *, older_than_hours: int) -> None:
    """Forget idempotency keys whose day is over."""
    run(ledger.relaxed, _PURGE_KEYS, hours=older_than_hours)


def _ring(ledger: Ledger, statement: Any, of: Pool, limit: int, **parameters: Any) -> list[Rung]:
    rows = run(ledger.relaxed, statement, queued=POOL_STATES[of].queued.value, max_tries=MAX_TRIES, limit=limit, **parameters)
    return [rung(row) for row in rows]
