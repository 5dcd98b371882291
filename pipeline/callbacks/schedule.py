"""When an undelivered webhook is tried again; pure, told the time and the chance."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

MINUTE_S: Final = 60.0
HOUR_S: Final = 3600.0

DELAYS_S: Final = (
    0.0,
    5.0,
    30.0,
    2 * MINUTE_S,
    10 * MINUTE_S,
    30 * MINUTE_S,
    2 * HOUR_S,
    5 * HOUR_S,
    10 * HOUR_S,
    14 * HOUR_S,
    20 * HOUR_S,
    24 * HOUR_S,
)
"""Before each attempt, counted from the end of the one before: about 3.2 days in all."""

JITTER: Final = 0.2
"""Each delay is spread by so much either way: a receiver that returns is not met by all at once."""

LONGEST_RETRY_AFTER_S: Final = HOUR_S


def next_attempt_at(
    attempts_made: int, *, now: datetime, jitter: Callable[[], float], retry_after_s: float | None = None
) -> datetime | None:
    """Say when to try next; None once the message is dead.

    Parameters
    ----------
    attempts_made
        0 before the first.
    jitter
        Gives a number from 0 to 1, such as `random.random`.
    retry_after_s
        What the receiver asked for. It lengthens a delay, up to an hour, and never shortens one.
    """
    if attempts_made >= len(DELAYS_S):
        return None
    spread = 1 + JITTER * (2 * jitter() - 1)
    asked_s = min(retry_after_s or 0.0, LONGEST_RETRY_AFTER_S)
    return now + timedelta(seconds=max(DELAYS_S[attempts_made] * spread, asked_s))
