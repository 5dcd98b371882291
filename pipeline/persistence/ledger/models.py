"""Which versions of the models serve, as operators decided, and what each inference process has loaded.

One truth for every process on every host. Acts are rows that are only added: the newest of a model is in force, and all
together they are the audit trail.
"""

import json
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from sqlalchemy import text
from sqlalchemy.engine import Row

from pipeline.cases.serving import ServingPlan, reference_of
from pipeline.cases.states import POOL_STATES
from pipeline.flow import Pool
from pipeline.persistence.ledger.engine import Ledger, run

LIVE_S = 15.0
"""A process that has said nothing for so long is not counted any more."""

_PLANS = text("""
SELECT DISTINCT ON (name) name, number, act, serving, canary, share, shadow, candidate, before FROM model_acts ORDER BY name, number DESC
""")
# Of two who act on one state the primary key lets one through.
_RECORD = text("""
INSERT INTO model_acts (name, number, act, serving, canary, share, shadow, candidate, before, actor)
VALUES (:name, :number, :act, :serving, :canary, :share, :shadow, :candidate, :before, :actor)
ON CONFLICT (name, number) DO NOTHING RETURNING number
""")
_REPORT = text("""
WITH said AS (
    INSERT INTO model_reports (worker, name, version, state, act_number, digest, code, reason, one_s, most_s, seen_at)
    SELECT :worker, name, version, state, act_number, digest, code, reason, one_s, most_s, clock_timestamp()
    FROM jsonb_to_recordset(CAST(:reports AS jsonb)) AS report(name text, version text, state text, act_number integer, digest text,
                                                               code text, reason text, one_s float8, most_s float8)
    ON CONFLICT (worker, name, version) DO UPDATE SET
        state = excluded.state, act_number = excluded.act_number, digest = excluded.digest, code = excluded.code,
        reason = excluded.reason, one_s = excluded.one_s, most_s = excluded.most_s, seen_at = excluded.seen_at
)
DELETE FROM model_reports
WHERE (worker = :worker AND NOT name || ':' || version = ANY(CAST(:references AS text[])))
   OR seen_at < clock_timestamp() - interval '1 day'
""")
_LIVE = text("""
SELECT worker, name, version, state, act_number, digest, code, reason, one_s, most_s FROM model_reports
WHERE seen_at > clock_timestamp() - make_interval(secs => :live_s) ORDER BY name, version, worker
""")
_WANTED = text("""
SELECT DISTINCT work->'prepared'->>'model' AS model FROM cases WHERE ended_at IS NULL AND state = ANY(:states)
""")

ReportState = Literal["loading", "loaded", "refused"]


@dataclass(frozen=True, slots=True)
class ModelReport:
    """What one inference process says of one version."""

    worker: str
    name: str
    version: str
    state: ReportState
    act_number: int = 0
    """The act under which it was refused."""
    digest: str | None = None
    """SHA-256 of its weights, as they were verified."""
    code: str | None = None
    reason: str | None = None
    """Why it was refused."""
    one_s: float | None = None
    most_s: float | None = None
    """L(1) and L(16): what a batch of one and of sixteen images took at the warm-up."""

    @property
    def reference(self) -> str:
        """`name:version`."""
        return reference_of(self.name, self.version)


def read_plans(ledger: Ledger) -> dict[str, ServingPlan]:
    """The plan in force of each model that anybody has acted on, by its name."""
    return {row.name: _plan(row) for row in run(ledger.relaxed, _PLANS)}


def record_act(ledger: Ledger, plan: ServingPlan, *, actor: str) -> bool:
    """Put a plan in force as the act after the one that it was made from; False where somebody else has acted meanwhile."""
    parameters = {field: value for field, value in asdict(plan).items() if field != "number"}
    return bool(run(ledger.durable, _RECORD, number=plan.number, actor=actor, **parameters))


def say_loaded(ledger: Ledger, worker: str, reports: Collection[ModelReport]) -> None:
    """Write what a process has loaded and refused, in the place of all that it said before."""
    items = [{field: value for field, value in asdict(report).items() if field != "worker"} for report in reports]
    run(ledger.relaxed, _REPORT, worker=worker, reports=json.dumps(items), references=[report.reference for report in reports])


def live_reports(ledger: Ledger) -> list[ModelReport]:
    """What the inference processes say that gave a sign of life lately."""
    return [ModelReport(**row._mapping) for row in run(ledger.relaxed, _LIVE, live_s=LIVE_S)]


def models_wanted(ledger: Ledger) -> set[str]:
    """The `name:version` of every case that waits for the model, or is in its hands."""
    states = POOL_STATES[Pool.INFERENCE]
    rows: Iterable[Any] = run(ledger.relaxed, _WANTED, states=[states.queued.value, states.claimed.value])
    return {row.model for row in rows if row.model is not None}


def _plan(row: Row[Any]) -> ServingPlan:
    return ServingPlan(**row._mapping)
