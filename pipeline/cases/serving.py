"""Which version of a model answers a case: the plan of a model, and how its shares are dealt. Pure."""

import hashlib
from dataclasses import dataclass
from typing import Final, Literal
from uuid import UUID

Act = Literal["default", "load", "switch", "canary", "shadow", "rollback", "refused"]
"""What an operator did; `default` is what a process noted at its start, `refused` what became of a version that did not pass."""
DEFAULT: Final = "default"

_HASHED_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class ServingPlan:
    """Which versions of one model serve. Acts are numbered for each model, from 1; the newest is in force."""

    name: str
    number: int
    act: Act
    serving: str | None
    """The version that answers, but for the canary's share; None while a model that is new to the house is loaded for the first time."""
    canary: str | None = None
    """The version that answers `share` of the cases."""
    share: float = 0.0
    shadow: str | None = None
    """The version that reads on idle capacity beside `serving`, and answers nobody."""
    candidate: str | None = None
    """The version that is to be loaded and checked, before anything is sent to it."""
    before: str | None = None
    """The version that answered before `serving` did."""

    @property
    def versions(self) -> tuple[str, ...]:
        """Every version that must be loaded, the one that answers first."""
        named = (self.serving, self.canary, self.shadow, self.candidate)
        return tuple(dict.fromkeys(version for version in named if version is not None))

    @property
    def references(self) -> tuple[str, ...]:
        """The same as `name:version`."""
        return tuple(reference_of(self.name, version) for version in self.versions)


def reference_of(name: str, version: str) -> str:
    """`name:version`, as messages, rows and results name a model."""
    return f"{name}:{version}"


def name_of(reference: str) -> str:
    """The name in `name:version`."""
    return reference.partition(":")[0]


def version_for(plan: ServingPlan, case_id: UUID) -> str | None:
    """The version that answers this case: the same one whenever and wherever it is asked for. None where none does yet.

    Each canary deals anew: whoever was in the last one's share is in the next one's no more often than anybody else.
    """
    if plan.canary is None:
        return plan.serving
    digest = hashlib.sha256(f"{plan.name}:{plan.canary}".encode() + case_id.bytes).digest()
    place = int.from_bytes(digest[:_HASHED_BYTES]) / 256**_HASHED_BYTES
    return plan.canary if place < plan.share else plan.serving
