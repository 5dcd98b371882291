"""Who is tried again, how soon, and how much of that the house bears. Pure."""

from collections.abc import Callable

from pipeline.flow import Lane, Pool

MAX_STRIKES = 2
"""A case whose work has crashed so often is quarantined."""
FIRST_DELAY_S = 0.2
LONGEST_DELAY_S = 2.0
SHORTEST_DELAY_S = 0.01
"""A delay of nothing could not be told from a case that waits for no retry."""
TOKENS_A_FIRST_ATTEMPT = 0.1
"""What a first attempt adds to its pool's retry budget, of which a retry takes one: retries add a tenth to the load."""
MOST_TOKENS = 20.0


def redo_delay_s(tries: int, *, left_s: float, jitter: Callable[[], float]) -> float:
    """Seconds until a pool tries a case again after so many tries: full jitter, inside what is left of the deadline.

    `jitter` gives 0 to 1.
    """
    ceiling_s = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2.0**tries, left_s)
    return max(SHORTEST_DELAY_S, jitter() * ceiling_s)


def budget_change(*, first_attempts: int, lapses: int) -> float:
    """What a pool's retry budget gains by its first attempts, less a token for each retry that nobody asked it for.

    A lapsed lease is tried again whatever the budget holds: its worker died, and two strikes bound that.
    """
    return TOKENS_A_FIRST_ATTEMPT * first_attempts - lapses


def is_poison(strikes: int, *, pool: Pool, lane: Lane, has_lapsed: bool) -> bool:
    """Whether a case that has no try left is quarantined; else it is put off.

    `has_lapsed` says that its last lease ran out, which is not in `strikes` yet. That is a strike where the case was by
    itself: in inference, where a suspect runs alone, and in the compensation lane. In the other pools it shared a process
    with others that may have ended it.
    """
    was_alone = pool is Pool.INFERENCE or lane is Lane.COMPENSATION
    return strikes + (has_lapsed and was_alone) >= MAX_STRIKES
