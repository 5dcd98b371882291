"""Optional attributes: junk in one is a warning, never a guess and never an end."""

from collections.abc import Callable
from typing import Final, TypeVar

from pipeline.dicom.errors import BadValue
from pipeline.dicom.reading.elements import Elements

Value = TypeVar("Value")

UNREADABLE: Final = "unreadable"


class Warnings:
    """Collects the codes of what was odd but readable, each once, in order."""

    def __init__(self) -> None:
        self._codes: dict[str, None] = {}

    def add(self, code: str) -> None:
        """Note one oddity."""
        self._codes[code] = None

    def codes(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(self._codes)

    def optional(self, read: Callable[[str], Value], keyword: str, code: str) -> Value | None:
        """Read an optional attribute; a value that cannot be read counts as absent and is warned of."""
        try:
            return read(keyword)
        except BadValue:
            self.add(f"{code}-{UNREADABLE}")
            return None


def frame_decimals(elements: Elements, macro: str, keyword: str, *, warnings: Warnings, code: str) -> tuple[float, ...] | None:
    """A number of the functional groups (PS3.3 C.7.6.16), where all frames agree on it.

    Frames that disagree are warned of as `<code>-differs-by-frame` and count as unstated: one frame's number
    would be wrong for the others.
    """
    found: set[tuple[float, ...]] = set()
    for groups in ("SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"):
        for group in elements.items(groups):
            for item in group.items(macro):
                numbers = warnings.optional(item.decimals, keyword, code)
                if numbers is not None:
                    found.add(numbers)
    if len(found) > 1:
        warnings.add(f"{code}-differs-by-frame")
        return None
    return found.pop() if found else None
