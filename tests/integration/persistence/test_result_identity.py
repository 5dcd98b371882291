"""A result says whose it is and what it was made from; the ledger writes it for that case only."""

import json
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from pipeline.cases.digests import chain_of
from pipeline.cases.states import CaseState
from pipeline.flow import Pool
from pipeline.persistence.ledger.claims import Claimed
from pipeline.persistence.ledger.engine import Ledger, run
from pipeline.persistence.ledger.outcomes import Answer, Completion, complete_cases
from schemas.identifiers import public_id

pytestmark = pytest.mark.services

Cases = Any
"""The factory of `conftest.py`."""
PREPARED = {"instances": [{"digest": "1" * 64}, {"digest": "2" * 64}], "model_input": {"digest": "3" * 64}}
CHAINED = {
    "input_digest": chain_of(("1" * 64, "2" * 64)),
    "model_input_digest": "3" * 64,
    "model_output_digest": "4" * 64,
}
"""What a report says that was made from these instances, this input and this output."""


def worked_on(ledger: Ledger, cases: Cases, *, inferred: bool = True) -> Claimed:
    """A case with the work that pools leave, claimed for its report."""
    case: Claimed = cases.claimed(Pool.REPORTING)
    work = {"prepared": PREPARED, "inferred": {"probability": {"digest": "4" * 64}} if inferred else None}
    run(ledger.durable, text("UPDATE cases SET work = CAST(:work AS jsonb) WHERE id = :id"), id=case.case_id, work=json.dumps(work))
    return case


def said(case: Claimed, **changes: str | None) -> Completion:
    """A completion whose report says this of itself."""
    body = {"case_id": public_id("case", case.case_id), **CHAINED} | changes
    return Completion(case.case_id, case.attempt, Answer(1, "final", "nothing_found", json.dumps(body)), {})


def test_a_result_of_the_cases_own_chain_is_written(ledger: Ledger, cases: Cases) -> None:
    read, unread = worked_on(ledger, cases), worked_on(ledger, cases, inferred=False)

    done = [said(read), said(unread, model_output_digest=None)]
    written = complete_cases(ledger, done, left=CaseState.POSTPROCESSING, worker="w1")

    assert (written.ended, written.foreign) == ({read.case_id, unread.case_id}, set())


@pytest.mark.parametrize(
    "changes",
    [
        {"case_id": public_id("case", UUID(int=1))},
        {"case_id": None},
        {"input_digest": chain_of(("2" * 64, "1" * 64))},
        {"input_digest": None},
        {"model_input_digest": "9" * 64},
        {"model_input_digest": None},
        {"model_output_digest": "9" * 64},
        {"model_output_digest": None},
    ],
)
def test_a_result_that_says_it_is_anothers_is_withheld_and_its_company_is_not(
    ledger: Ledger, cases: Cases, changes: dict[str, str | None]
) -> None:
    own, foreign, stale = (worked_on(ledger, cases) for _ in range(3))
    before = cases.row(foreign.case_id)
    overtaken = said(stale, **changes)

    written = complete_cases(
        ledger, [said(foreign, **changes), said(own), replace(overtaken, attempt=0)], left=CaseState.POSTPROCESSING, worker="w1"
    )

    # Who has lost its claim has no say, whatever it brings.
    assert (written.ended, written.foreign) == ({own.case_id}, {foreign.case_id})
    assert (cases.row(foreign.case_id), cases.count("results")) == (before, 1)


def test_results_posted_under_each_others_ids_are_both_withheld_though_their_attempts_agree(ledger: Ledger, cases: Cases) -> None:
    first, second = worked_on(ledger, cases), worked_on(ledger, cases)
    assert first.attempt == second.attempt

    done = [replace(said(first), answer=said(second).answer), replace(said(second), answer=said(first).answer)]
    written = complete_cases(ledger, done, left=CaseState.POSTPROCESSING, worker="w1")

    assert (written.ended, written.foreign) == (set(), {first.case_id, second.case_id})
    assert cases.count("results") == 0
