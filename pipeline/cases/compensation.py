"""How much of the house the compensation queue may use, and how long a case waits for its next try. Pure."""

from collections.abc import Callable
from dataclasses import dataclass

SHARE = 0.1
"""Of the work that is done while other cases wait."""
IDLE_RELEASE = 16
"""Cases that are on their way at a time while nobody else waits: a batch."""
MOST_SAVED = 4.0
MOST_ON_THE_WAY = 16
"""While others wait: a batch, too. The rest waits in the ledger, where it is in nobody's way and holds no tensors."""
FIRST_DELAY_S = 60.0
LONGEST_DELAY_S = 6 * 3600.0


@dataclass(slots=True)
class Share:
    """Decides how many put-off cases may go now; saves up its tenth while the house is busy."""

    saved: float = 0.0

    def release_count(self, *, waiting_count: int, running_count: int, completed_count: int) -> int:
        """Cases to release now.

        Parameters
        ----------
        waiting_count
            Cases of the other lanes in any queue.
        running_count
            Compensation cases that are on their way.
        completed_count
            Cases completed since the last call.
        """
        self.saved = min(MOST_SAVED, self.saved + SHARE * completed_count)
        if waiting_count == 0:
            return max(0, IDLE_RELEASE - running_count)
        whole = min(int(self.saved), max(0, MOST_ON_THE_WAY - running_count))
        self.saved -= whole
        return whole


def retry_delay_s(attempts: int, *, jitter: Callable[[], float]) -> float:
    """Seconds until the next try after so many: full jitter, `jitter` gives 0 to 1."""
    return jitter() * min(LONGEST_DELAY_S, FIRST_DELAY_S * 4.0**attempts)
