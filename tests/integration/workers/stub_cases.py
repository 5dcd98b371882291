"""Cases for the stub pools, brought with the ledger's own statements, and what has become of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import text

from pipeline.cases.states import CaseState
from pipeline.deadline import utc_now
from pipeline.flow import Lane, Pool, stages_of
from pipeline.persistence.ledger.admission import NewCase, accept_cases
from pipeline.persistence.ledger.claims import HandOn, Rung, claim_cases, hand_on
from pipeline.persistence.ledger.engine import Ledger, run
from schemas.message import StageMessage
from schemas.work import CaseInput
from tests.integration.workers.stub_work import ENDPOINT, new_id

EMPTY = "TRUNCATE cases, case_events, results, deliveries, idempotency_keys, model_acts, model_reports"
LAPSE = text("UPDATE cases SET lease_until = clock_timestamp() - interval '1 ms' WHERE lease_until IS NOT NULL")
AGE = text("UPDATE cases SET published_at = published_at - interval '1 h', due_at = due_at - interval '1 h' WHERE ended_at IS NULL")
COMPENSATION = text("UPDATE cases SET lane = 'compensation', compensation_attempts = 1")
DUE_IN = text("""
UPDATE cases SET deadline_at = clock_timestamp() + make_interval(secs => :left_s),
       accepted_at = clock_timestamp() + make_interval(secs => :left_s) - interval '30 s'
""")
ROWS = text("SELECT *, due_at > published_at AS is_delayed FROM cases")
SAID = text("""
SELECT (SELECT count(*) FROM results WHERE case_id = :id) AS results, (SELECT count(*) FROM deliveries WHERE case_id = :id) AS callbacks,
       (SELECT count(*) FROM case_events WHERE case_id = :id AND entered_state = 'completed') AS ends
""")


@dataclass(frozen=True, slots=True)
class StubCases:
    """The cases of one ledger."""

    ledger: Ledger

    def empty(self) -> None:
        """Begin with none."""
        with self.ledger.relaxed.connect() as connection:
            connection.exec_driver_sql(EMPTY)

    def waiting(self, pool: Pool, count: int) -> list[Rung]:
        """New cases that wait for intake or for reporting, and what to ring for them."""
        now = utc_now()
        due_at = now + timedelta(seconds=300)
        new = [
            NewCase(case_id, ENDPOINT, Lane.ROUTINE, CaseInput(instances=()), now, due_at, case_id.hex, b"f" * 32, endpoint_id=ENDPOINT)
            for case_id in (new_id() for _ in range(count))
        ]
        accept_cases(self.ledger, new)
        ids = [each.id for each in new]
        if pool is Pool.REPORTING:
            claimed = claim_cases(self.ledger, ids, pool=Pool.INTAKE, worker="way", seen_no=0)
            done = [HandOn(each.case_id, each.attempt, {}, {}) for each in claimed]
            hand_on(self.ledger, done, left=CaseState.FETCHING, entered=CaseState.AWAITING_REPORT, worker="way")
        return self.rungs(ids)

    def rungs(self, ids: Sequence[UUID]) -> list[Rung]:
        """What to ring for these cases."""
        rows = self.rows()
        return [Rung(each, rows[each].publish_no, rows[each].attempt, Lane.ROUTINE, rows[each].deadline_at) for each in ids]

    def lapse(self) -> None:
        """Let all leases run out."""
        run(self.ledger.relaxed, LAPSE)

    def age(self) -> None:
        """Let all doorbells have been published long ago."""
        run(self.ledger.relaxed, AGE)

    def to_compensation(self) -> None:
        """Let all have been put off once and sent back to work."""
        run(self.ledger.relaxed, COMPENSATION)

    def leave(self, left_s: float) -> None:
        """Let all cases have so long until their deadline, of half a minute."""
        run(self.ledger.relaxed, DUE_IN, left_s=left_s)

    def rows(self) -> dict[UUID, Any]:
        """All rows, by id."""
        return {row.id: row for row in run(self.ledger.relaxed, ROWS)}

    def states(self) -> dict[UUID, str]:
        """Where each case stands."""
        return {case_id: row.state for case_id, row in self.rows().items()}

    def said(self, case_id: UUID) -> tuple[int, int, int]:
        """How many (results, callbacks, ends) a case has."""
        (row,) = run(self.ledger.relaxed, SAID, id=case_id)
        return (row.results, row.callbacks, row.ends)


def message_for(pool: Pool, rungs: Sequence[Rung]) -> dict[str, Any]:
    """The doorbell of some cases, as a task gets it."""
    message = StageMessage(
        case_ids=tuple(rung.case_id for rung in rungs),
        stage=stages_of(pool)[0].name,
        publish_no=max(rung.publish_no for rung in rungs),
        deadline_at=rungs[0].deadline_at,
    )
    return message.model_dump(mode="json")
