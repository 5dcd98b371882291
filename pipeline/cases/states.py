"""The state table of a case. `tests/unit/cases/test_states.py` restates it; nothing else may.

The stages of one pool run under one claim, so a pool has two states: queued and claimed. Whether a
claimed case is still in its first stage or already in the next is in its timeline.
"""

from dataclasses import dataclass
from enum import StrEnum

from pipeline.errors import SecondreadError
from pipeline.flow import Pool


class CaseState(StrEnum):
    """Where a case stands; the same words in the ledger and in the API."""

    ACCEPTED = "accepted"
    FETCHING = "fetching"
    AWAITING_INFERENCE = "awaiting_inference"
    INFERRING = "inferring"
    AWAITING_REPORT = "awaiting_report"
    POSTPROCESSING = "postprocessing"
    DEFERRED = "deferred"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class PoolStates:
    """The two states that a pool moves a case between."""

    queued: CaseState
    claimed: CaseState


POOL_STATES = {
    Pool.INTAKE: PoolStates(CaseState.ACCEPTED, CaseState.FETCHING),
    Pool.INFERENCE: PoolStates(CaseState.AWAITING_INFERENCE, CaseState.INFERRING),
    Pool.REPORTING: PoolStates(CaseState.AWAITING_REPORT, CaseState.POSTPROCESSING),
}

QUEUED = tuple(states.queued for states in POOL_STATES.values())
"""States in which a case waits for a pool and nobody holds it."""

TERMINAL = frozenset({CaseState.COMPLETED, CaseState.FAILED, CaseState.CANCELLED})

_ENDS = {CaseState.FAILED, CaseState.CANCELLED}

EDGES: dict[CaseState, frozenset[CaseState]] = {
    CaseState.ACCEPTED: frozenset({CaseState.FETCHING, CaseState.DEFERRED, *_ENDS}),
    # Intake skips inference where no model applies. Back to accepted: given back, or tried again.
    CaseState.FETCHING: frozenset(
        {CaseState.AWAITING_INFERENCE, CaseState.AWAITING_REPORT, CaseState.ACCEPTED, CaseState.DEFERRED, *_ENDS}
    ),
    # Back to accepted: its tensor is gone with the host that held it, so it is prepared again.
    CaseState.AWAITING_INFERENCE: frozenset({CaseState.INFERRING, CaseState.ACCEPTED, CaseState.DEFERRED, *_ENDS}),
    CaseState.INFERRING: frozenset(
        {CaseState.AWAITING_REPORT, CaseState.AWAITING_INFERENCE, CaseState.ACCEPTED, CaseState.DEFERRED, *_ENDS}
    ),
    CaseState.AWAITING_REPORT: frozenset({CaseState.POSTPROCESSING, CaseState.ACCEPTED, CaseState.DEFERRED, *_ENDS}),
    CaseState.POSTPROCESSING: frozenset({CaseState.COMPLETED, CaseState.AWAITING_REPORT, CaseState.ACCEPTED, CaseState.DEFERRED, *_ENDS}),
    CaseState.DEFERRED: frozenset({CaseState.ACCEPTED, *_ENDS}),
    CaseState.COMPLETED: frozenset(),
    CaseState.FAILED: frozenset(),
    CaseState.CANCELLED: frozenset(),
}


class ForbiddenTransition(SecondreadError):
    """The state table has no such edge: a mistake of ours, never of the input."""

    code = "forbidden-transition"


def require_transition(left: CaseState, entered: CaseState) -> None:
    """Refuse a move that the table does not have.

    Raises
    ------
    ForbiddenTransition
        There is no edge from `left` to `entered`.
    """
    if entered not in EDGES[left]:
        raise ForbiddenTransition("the state table has no such edge", left=left.value, entered=entered.value)


def pool_of(state: CaseState) -> Pool | None:
    """The pool that a case in this state waits for or is claimed by; None where no pool has it."""
    for pool, states in POOL_STATES.items():
        if state in (states.queued, states.claimed):
            return pool
    return None
