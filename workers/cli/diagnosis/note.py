"""What one look has found."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["good", "odd", "missing"]


@dataclass(frozen=True, slots=True)
class Note:
    """One sentence for the user: all is well, something should be looked at, or something that is needed is missing."""

    level: Level
    sentence: str
