"""The article's figures, and how they become ours: its device, its loads, its bars, ten times as fast."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tests.load.sleeping import Cost

SCALE: Final = 10.0
"""So many seconds of the article pass in one of ours."""
DEVICES: Final = 4
COST: Final = Cost.through(7.5 / SCALE, 10.5 / SCALE, spread=0.2)
"""One image 7.5 s, sixteen 10.5 s, U(0.8, 1.2)."""
DEADLINE_S: Final = 30.0 / SCALE
SETTINGS: Final[Mapping[str, str]] = {
    "SECONDREAD_DEADLINE_S": f"{DEADLINE_S:g}",
    "SECONDREAD_PRELIMINARY_AFTER_S": f"{10.0 / SCALE:g}",
    "SECONDREAD_ANSWER_RESERVE_S": f"{2.0 / SCALE:g}",
    "SECONDREAD_BATCH_WINDOW_S": f"{2.0 / SCALE:g}",
    "SECONDREAD_BATCH_IMAGES": "16",
}
"""Every time of the product that a case of the article would meet. Leases, sweeps and retries keep theirs: nothing fails here."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One load of the article."""

    images_per_min: float
    """In the article's time."""
    p99_s: float | None
    """In the article's time; None: not judged."""

    @property
    def name(self) -> str:
        """What it is called."""
        return f"{self.images_per_min:.0f} images/min"

    @property
    def rate(self) -> float:
        """Cases a second, in our time."""
        return self.images_per_min * SCALE / 60


PHASES: Final = (Phase(38, None), Phase(124, 14.0), Phase(330, 19.5))
SERIAL: Final = Phase(38, None)
"""What the set-up without batches collapses under: it carries 4 images in 7.5 s, 32 a minute."""
