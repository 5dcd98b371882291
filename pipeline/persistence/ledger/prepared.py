"""What waiting cases would have the model shown: read without claiming anything."""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import text

from pipeline.cases.states import POOL_STATES
from pipeline.flow import Pool
from pipeline.persistence.ledger.engine import Ledger, run
from schemas.tensor import TensorHandle

_MODEL_INPUTS = text("""
SELECT id, work->'prepared'->'model_input' AS handle FROM cases
WHERE id = ANY(:ids) AND state = :queued AND work->'prepared'->'model_input' ->> 'key' IS NOT NULL
""")


def model_inputs(ledger: Ledger, case_ids: Sequence[UUID]) -> dict[UUID, TensorHandle]:
    """The model input of each of these cases that waits for inference, in the order asked; a case may move on at any moment."""
    queued = POOL_STATES[Pool.INFERENCE].queued.value
    found = {
        row.id: TensorHandle.model_validate(row.handle) for row in run(ledger.relaxed, _MODEL_INPUTS, ids=list(case_ids), queued=queued)
    }
    return {case_id: found[case_id] for case_id in case_ids if case_id in found}
