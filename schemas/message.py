"""What a queue carries: ids and times, under a kilobyte, no patient data."""

from typing import Literal
from uuid import UUID

from pydantic import AwareDatetime, Field

from schemas.frozen import Frozen

MOST_CASES = 8
"""Cases that one doorbell may name: enough to share a claim and a commit, few enough for a kilobyte."""


class StageMessage(Frozen):
    """A doorbell: these cases have work for this stage. The ledger knows the rest."""

    schema_version: Literal[1] = 1
    case_ids: tuple[UUID, ...] = Field(min_length=1, max_length=MOST_CASES)
    """Cases of one lane that became ready in one commit; one case where no other came with it."""
    stage: str = Field(max_length=32)
    """The first stage of the pool that is rung."""
    publish_no: int = Field(ge=0)
    """Counts every doorbell of the deployment; tells an overtaken message from a waiting one. The highest of the cases'."""
    deadline_at: AwareDatetime
    """The earliest of the cases'."""
