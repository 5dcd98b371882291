"""What every door does with new cases: commit them, then ring intake."""

from collections.abc import Sequence

from pipeline.flow import Pool
from pipeline.observability import metrics
from pipeline.persistence.ledger.admission import Accepted, KeyReused, NewCase, accept_cases
from pipeline.persistence.ledger.claims import Rung
from pipeline.persistence.ledger.engine import Ledger
from workers.doorbell import Publisher, ring


def admit(ledger: Ledger, app: Publisher, asked: Sequence[NewCase]) -> list[Accepted | KeyReused]:
    """Commit cases together and ring for those that are new.

    Raises
    ------
    LedgerUnavailable
        Nothing was promised.
    """
    outcomes = accept_cases(ledger, asked)
    made = [
        Rung(outcome.case_id, outcome.publish_no, 0, new.lane, new.deadline_at)
        for new, outcome in zip(asked, outcomes, strict=True)
        if isinstance(outcome, Accepted) and not outcome.is_replay
    ]
    ring(app, Pool.INTAKE, made)
    for rung in made:
        metrics.CASES_ADMITTED.labels(rung.lane.value).inc()
    return outcomes
