"""The retry budgets: a bucket of tokens for each pool, in the ledger, so that it is one bucket whoever leads the sweepers."""

from collections.abc import Mapping
from uuid import UUID

from sqlalchemy import text

from pipeline.cases.retries import MOST_TOKENS
from pipeline.cases.states import POOL_STATES
from pipeline.flow import Pool
from pipeline.persistence.ledger import claims
from pipeline.persistence.ledger.engine import Ledger, run

_CHANGE = text("""
UPDATE retry_budgets SET tokens = GREATEST(0, LEAST(CAST(:most AS float8), tokens + change))
FROM unnest(CAST(:pools AS text[]), CAST(:changes AS float8[])) AS asked(asked_pool, change)
WHERE pool = asked_pool RETURNING pool, tokens
""")
_UNPAID = text("""
SELECT id FROM cases
WHERE state = :queued AND ended_at IS NULL AND due_at > published_at AND due_at <= clock_timestamp() AND tries BETWEEN 1 AND :last_try
ORDER BY due_at LIMIT :limit
""")


def change_budgets(ledger: Ledger, changes: Mapping[Pool, float]) -> dict[Pool, float]:
    """Add tokens to the pools' buckets, or take some, and return what each holds then: never less than none, never more than fits."""
    given = [float(change) for change in changes.values()]
    rows = run(ledger.relaxed, _CHANGE, most=MOST_TOKENS, pools=[pool.value for pool in changes], changes=given)
    return {Pool(row.pool): row.tokens for row in rows}


def unpaid_retries(ledger: Ledger, pool: Pool, *, limit: int) -> list[UUID]:
    """Cases whose retry is due and was not rung, longest due first: what is left when the pool's bucket is empty."""
    queued = POOL_STATES[pool].queued.value
    return [row.id for row in run(ledger.relaxed, _UNPAID, queued=queued, last_try=claims.MAX_TRIES - 1, limit=limit)]
