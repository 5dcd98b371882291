"""The ledger's statements for several cases, asked for one."""

from typing import Any

from pipeline.errors import StaleCompletion
from pipeline.persistence.ledger.admission import Accepted, KeyReused, NewCase, accept_cases
from pipeline.persistence.ledger.engine import Ledger
from pipeline.persistence.ledger.outcomes import Answer, Callback, Completion, Ownership, complete_cases


def accept_case(ledger: Ledger, new: NewCase) -> Accepted:
    """Commit one case; raise where its key was used otherwise."""
    (outcome,) = accept_cases(ledger, [new])
    if isinstance(outcome, KeyReused):
        raise outcome
    return outcome


def complete_case(ledger: Ledger, owner: Ownership, answer: Answer, *, timeline: dict[str, Any], callback: Callback | None) -> None:
    """End one case with its result; raise where its claim no longer stands."""
    completion = Completion(owner.case_id, owner.attempt, answer, timeline, callback)
    if complete_cases(ledger, [completion], left=owner.left, worker=owner.worker).ended != {owner.case_id}:
        raise StaleCompletion("the claim no longer stands")
