"""Cases that wait for the model with a real tensor each, brought with the ledger's own statements."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import numpy.typing as npt

from pipeline.cases.states import CaseState
from pipeline.deadline import utc_now
from pipeline.flow import Pool
from pipeline.persistence.ledger.claims import Claimed, HandOn, Rung, claim_cases, hand_on
from pipeline.persistence.ledger.engine import Ledger
from pipeline.tensors.store import TensorStore
from schemas.work import PreparedCase
from tests.integration.workers.stub_cases import StubCases

Image = npt.NDArray[np.uint8]
"""(channel, row, column)"""
LIFETIME = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class PreparedCases:
    """Brings cases as far as intake does; nobody has put them in their model's line."""

    ledger: Ledger
    tensors: TensorStore
    model: str

    def bring(self, images: Sequence[Image]) -> list[Rung]:
        """One case for each image, in their order."""
        ids = [rung.case_id for rung in StubCases(self.ledger).waiting(Pool.INTAKE, len(images))]
        claimed = claim_cases(self.ledger, ids, pool=Pool.INTAKE, worker="way", seen_no=0)
        done = [self._prepared(case, image) for case, image in zip(claimed, images, strict=True)]
        rungs = hand_on(self.ledger, done, left=CaseState.FETCHING, entered=CaseState.AWAITING_INFERENCE, worker="way")
        return sorted(rungs, key=lambda rung: ids.index(rung.case_id))

    def _prepared(self, case: Claimed, image: Image) -> HandOn:
        handle = self.tensors.put(image[np.newaxis], case_id=case.case_id, generation=case.attempt, expires_at=utc_now() + LIFETIME)
        prepared = PreparedCase(model=self.model, instances=(), images=(), model_input=handle)
        return HandOn(case.case_id, case.attempt, {"prepared": prepared.model_dump(mode="json")}, {})
