"""What a queue carries: ids and times, under a kilobyte, no patient data."""

from collections.abc import Mapping
from typing import Literal
from uuid import UUID

from pydantic import AwareDatetime, Field

from schemas.frozen import Frozen

MOST_CASES = 16
"""Cases that one doorbell may name: enough to share a claim and a commit, few enough for a kilobyte."""


SCHEMA_VERSION = 1
"""A new version may add to a doorbell; it takes away and changes nothing that the version before it needs."""


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


def is_newer(arguments: Mapping[str, object]) -> bool:
    """Whether a message is of a later version than this code knows."""
    version = arguments.get("schema_version")
    return type(version) is int and version > SCHEMA_VERSION


def read_message(arguments: Mapping[str, object]) -> StageMessage:
    """Read a doorbell of this version, or of a later one as far as it is known here: it only says where to look.

    Raises
    ------
    ValidationError
        It is none, or a later version has taken away what this one needs.
    """
    if is_newer(arguments):
        arguments = {name: arguments[name] for name in StageMessage.model_fields if name in arguments}
        arguments["schema_version"] = SCHEMA_VERSION
    return StageMessage.model_validate(arguments)
