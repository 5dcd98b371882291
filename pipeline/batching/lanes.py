"""Virtual deadlines: a lane is a budget, so urgent goes first and routine is overtaken for so long only."""

from collections.abc import Mapping

from pipeline.flow import Lane

LANE_BUDGET_S: Mapping[str, float] = {Lane.URGENT: 12.0, Lane.ROUTINE: 30.0, Lane.COMPENSATION: 600.0}
"""A routine case is overtaken by urgent ones that came up to 18 s later, and by none after that."""
LANE_WEIGHT: Mapping[str, float] = {Lane.URGENT: 3.0, Lane.ROUTINE: 1.0, Lane.COMPENSATION: 1.0}
"""What a second of waiting counts, and an answer in time where not all can have one."""


def virtual_deadline(lane: Lane, *, accepted_at: float, joined_at: float) -> float:
    """Its place in the line, fixed when it joins: Unix seconds.

    A case that was put off was accepted long ago and has an answer: its budget begins anew where it joins, or it would stand
    before every urgent one that comes.
    """
    return (joined_at if lane is Lane.COMPENSATION else accepted_at) + LANE_BUDGET_S[lane]


def prepared_in_s(lane: str, *, place: float, joined_at: float) -> float:
    """How long a case was on its way from acceptance to the line, as its place tells; 0 in the compensation lane, where it does not."""
    return max(joined_at - (place - LANE_BUDGET_S[lane]), 0.0)


def is_overdue(lane: str, *, joined_at: float, now: float) -> bool:
    """Whether a put-off case has waited in line for all of its budget."""
    return lane == Lane.COMPENSATION and now - joined_at > LANE_BUDGET_S[Lane.COMPENSATION]
