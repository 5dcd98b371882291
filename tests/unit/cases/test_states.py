"""The state table of a case, restated by hand: the one place that may."""

from itertools import product
from typing import get_args

import pytest

from pipeline.cases.states import EDGES, TERMINAL, CaseState, ForbiddenTransition, pool_of, require_transition
from pipeline.flow import Pool
from schemas.webhook import CaseStatus

TABLE = """
accepted            > fetching deferred failed cancelled
fetching            > awaiting_inference awaiting_report accepted deferred failed cancelled
awaiting_inference  > inferring accepted deferred failed cancelled
inferring           > awaiting_report awaiting_inference accepted deferred failed cancelled
awaiting_report     > postprocessing accepted deferred failed cancelled
postprocessing      > completed awaiting_report accepted deferred failed cancelled
deferred            > accepted failed cancelled
completed           >
failed              >
cancelled           >
"""
ROWS = [line.split(">") for line in TABLE.strip().splitlines()]
NEXT = {CaseState(left.strip()): {CaseState(word) for word in entered.split()} for left, entered in ROWS}
ALLOWED = [(left, entered) for left, entered in product(CaseState, CaseState) if entered in NEXT[left]]
FORBIDDEN = [(left, entered) for left, entered in product(CaseState, CaseState) if entered not in NEXT[left]]


def test_the_table_names_every_state_and_every_edge() -> None:
    assert EDGES == NEXT
    assert len(ALLOWED) == 35


@pytest.mark.parametrize(("left", "entered"), ALLOWED)
def test_an_edge_of_the_table_is_allowed(left: CaseState, entered: CaseState) -> None:
    require_transition(left, entered)


@pytest.mark.parametrize(("left", "entered"), FORBIDDEN)
def test_a_move_without_an_edge_is_refused_and_says_which(left: CaseState, entered: CaseState) -> None:
    with pytest.raises(ForbiddenTransition) as refused:
        require_transition(left, entered)

    assert refused.value.facts == {"left": left.value, "entered": entered.value}


def test_terminal_is_what_nothing_leaves() -> None:
    assert {state for state in CaseState if not NEXT[state]} == TERMINAL


def test_every_open_state_can_fail_and_be_cancelled() -> None:
    for state in set(CaseState) - TERMINAL:
        assert {CaseState.FAILED, CaseState.CANCELLED} <= NEXT[state]


def test_every_state_can_be_reached_from_acceptance() -> None:
    reached, fresh = {CaseState.ACCEPTED}, {CaseState.ACCEPTED}
    while fresh:
        fresh = {entered for state in fresh for entered in NEXT[state]} - reached
        reached |= fresh

    assert reached == set(CaseState)


@pytest.mark.parametrize(
    ("state", "pool"),
    [
        (CaseState.ACCEPTED, Pool.INTAKE),
        (CaseState.FETCHING, Pool.INTAKE),
        (CaseState.AWAITING_INFERENCE, Pool.INFERENCE),
        (CaseState.INFERRING, Pool.INFERENCE),
        (CaseState.AWAITING_REPORT, Pool.REPORTING),
        (CaseState.POSTPROCESSING, Pool.REPORTING),
        (CaseState.DEFERRED, None),
        (CaseState.COMPLETED, None),
        (CaseState.FAILED, None),
        (CaseState.CANCELLED, None),
    ],
)
def test_a_state_belongs_to_one_pool_or_none(state: CaseState, pool: Pool | None) -> None:
    assert pool_of(state) is pool


def test_the_api_speaks_of_the_same_states() -> None:
    assert set(get_args(CaseStatus)) == {state.value for state in CaseState}
