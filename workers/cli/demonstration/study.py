"""One study of the demonstration, and what must be answered to it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from schemas.report import Outcome


@dataclass(frozen=True, slots=True)
class DemoStudy:
    """A study whose truth is known."""

    name: str
    file: Path
    expected: Outcome
    overlap: Callable[[bytes], float] | None = None
    """Measures how well the PNG of a probability map fits the true outline, 0 to 1; None where there is no lesion."""
