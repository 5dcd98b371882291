"""How many images a device's memory was found to hold. Pure: it is told what ran and what did not fit."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

CLEAN_FULL_BATCHES = 20
"""So many full batches in turn without trouble, and one more image is tried: who took the memory may have gone."""
RECENT_RUNS = 20
"""How far back a run proves that its size fits."""


@dataclass(slots=True)
class MemoryCap:
    """The most images of one model and input size that one device is given at once, whatever the configuration allows.

    A batch that does not fit halves it, or lowers it to the largest size that fitted a moment ago. It rises by one image
    for 20 clean full batches. A larger size that ran all the same (one case of many images) raises it at once.
    """

    images: int
    _recent: deque[int] = field(default_factory=lambda: deque(maxlen=RECENT_RUNS))
    """Sizes that ran since one did not fit."""
    _clean_full_count: int = 0

    @classmethod
    def from_sweep(cls, sizes: Iterable[int]) -> "MemoryCap":
        """Begin with what the warm-up ran: a larger batch has not been shown to fit."""
        warmed = sorted(sizes)
        return cls(warmed[-1], deque(warmed, maxlen=RECENT_RUNS))

    def ran(self, images: int) -> None:
        """Note a batch that fitted."""
        self._recent.append(images)
        if images < self.images:
            return
        self.images = images
        self._clean_full_count += 1
        if self._clean_full_count == CLEAN_FULL_BATCHES:
            self.images += 1
            self._clean_full_count = 0

    def overflowed(self, images: int) -> None:
        """Note a batch that did not fit."""
        known = max((size for size in self._recent if size < images), default=1)
        self.images = min(self.images, max(images // 2, known))
        self._recent.clear()
        self._clean_full_count = 0
