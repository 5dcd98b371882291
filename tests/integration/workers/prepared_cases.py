"""Cases that wait for the model with a real tensor each, brought with the ledger's own statements."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import numpy as np
import numpy.typing as npt

from pipeline.cases.states import CaseState
from pipeline.deadline import utc_now
from pipeline.flow import Lane, Pool
from pipeline.persistence.ledger.admission import NewCase, accept_cases
from pipeline.persistence.ledger.claims import Claimed, HandOn, claim_cases, hand_on
from pipeline.persistence.ledger.engine import Ledger
from pipeline.tensors.shared_memory import SharedMemoryStore
from schemas.work import CaseInput, PreparedCase
from tests.integration.workers.stub_work import ENDPOINT, new_id

Image = npt.NDArray[np.uint8]
"""(channel, row, column)"""
LIFETIME = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class PreparedCases:
    """Brings cases to where the sweeper puts them in their model's line."""

    ledger: Ledger
    tensors: SharedMemoryStore
    model: str

    def bring(self, images: Sequence[Image]) -> list[UUID]:
        """One case for each image, in their order."""
        now = utc_now()
        ids = [new_id() for _ in images]
        accept_cases(
            self.ledger,
            [
                NewCase(each, ENDPOINT, Lane.ROUTINE, CaseInput(instances=()), now, now + timedelta(seconds=300), each.hex, b"f" * 32)
                for each in ids
            ],
        )
        claimed = claim_cases(self.ledger, ids, pool=Pool.INTAKE, worker="way", seen_no=0)
        done = [self._prepared(case, image) for case, image in zip(claimed, images, strict=True)]
        hand_on(self.ledger, done, left=CaseState.FETCHING, entered=CaseState.AWAITING_INFERENCE, worker="way")
        return ids

    def _prepared(self, case: Claimed, image: Image) -> HandOn:
        handle = self.tensors.put(image[np.newaxis], case_id=case.case_id, generation=case.attempt, expires_at=utc_now() + LIFETIME)
        prepared = PreparedCase(model=self.model, instances=(), images=(), model_input=handle)
        return HandOn(case.case_id, case.attempt, {"prepared": prepared.model_dump(mode="json")}, {})
