"""What a queue carries: ids and times, under a kilobyte, no patient data."""

from typing import Literal
from uuid import UUID

from pydantic import AwareDatetime, Field

from schemas.frozen import Frozen


class StageMessage(Frozen):
    """A doorbell: this case has work for this stage. The ledger knows the rest."""

    schema_version: Literal[1] = 1
    case_id: UUID
    stage: str = Field(max_length=32)
    """The first stage of the pool that is rung."""
    attempt: int = Field(ge=0)
    """The ledger's attempt when the bell was rung."""
    publish_no: int = Field(ge=0)
    """Counts every doorbell of the deployment; tells an overtaken message from a waiting one."""
    deadline_at: AwareDatetime
    traceparent: str | None = Field(default=None, max_length=64)
    """W3C trace context."""
