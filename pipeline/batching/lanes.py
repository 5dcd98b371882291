"""Virtual deadlines: a lane is a budget, so urgent goes first and routine is overtaken for so long only."""

from pipeline.flow import Lane

LANE_BUDGET_S = {Lane.URGENT: 12.0, Lane.ROUTINE: 30.0, Lane.COMPENSATION: 600.0}
"""A routine case is overtaken by urgent ones that came up to 18 s later, and by none after that."""


def virtual_deadline(lane: Lane, *, accepted_at: float) -> float:
    """Its place in the line, fixed at arrival: Unix seconds."""
    return accepted_at + LANE_BUDGET_S[lane]
