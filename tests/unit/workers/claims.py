"""A claimed case, as a worker gets it."""

from datetime import UTC, datetime
from uuid import UUID

from pipeline.flow import Lane
from pipeline.persistence.ledger.claims import Claimed
from schemas.work import CaseInput, CaseWork

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def claimed(number: int, *, strikes: int = 0) -> Claimed:
    """The case of this number, claimed once more than its work has crashed."""
    return Claimed(
        case_id=UUID(int=number),
        attempt=strikes + 1,
        tries=strikes + 1,
        strikes=strikes,
        lane=Lane.ROUTINE,
        accepted_at=NOW,
        deadline_at=NOW,
        input=CaseInput(instances=()),
        work=CaseWork(),
        result_version=0,
        is_preliminary=False,
        compensation_attempts=0,
        client_reference=None,
        endpoint_id=None,
        due_s=0.0,
    )
