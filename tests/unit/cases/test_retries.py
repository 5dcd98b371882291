"""Who is tried again, how soon, and what is quarantined: by arithmetic in the head."""

import math

import pytest

from pipeline.cases.retries import SHORTEST_DELAY_S, budget_change, is_poison, redo_delay_s
from pipeline.flow import Lane, Pool


@pytest.mark.parametrize(("tries", "longest_s"), [(1, 0.4), (2, 0.8), (3, 1.6), (4, 2.0), (30, 2.0)])
def test_a_retry_comes_later_with_each_try_and_with_full_jitter(tries: int, longest_s: float) -> None:
    assert redo_delay_s(tries, left_s=30.0, jitter=lambda: 1.0) == pytest.approx(longest_s)
    assert redo_delay_s(tries, left_s=30.0, jitter=lambda: 0.5) == pytest.approx(longest_s / 2)


@pytest.mark.parametrize(
    ("left_s", "delay_s"), [(30.0, 1.6), (1.0, 1.0), (0.0, SHORTEST_DELAY_S), (-5.0, SHORTEST_DELAY_S), (math.inf, 1.6)]
)
def test_a_retry_stays_inside_the_deadline_where_there_is_one(left_s: float, delay_s: float) -> None:
    assert redo_delay_s(3, left_s=left_s, jitter=lambda: 1.0) == pytest.approx(delay_s)


def test_no_delay_is_nothing() -> None:
    assert redo_delay_s(1, left_s=30.0, jitter=lambda: 0.0) == SHORTEST_DELAY_S > 1e-6


@pytest.mark.parametrize(("first_attempts", "lapses", "change"), [(10, 0, 1.0), (0, 3, -3.0), (100, 4, 6.0)])
def test_ten_first_attempts_pay_for_one_retry(first_attempts: int, lapses: int, change: float) -> None:
    assert budget_change(first_attempts=first_attempts, lapses=lapses) == pytest.approx(change)


@pytest.mark.parametrize(
    ("strikes", "pool", "lane", "has_lapsed", "quarantined"),
    [
        (0, Pool.INTAKE, Lane.ROUTINE, False, False),
        (2, Pool.INTAKE, Lane.ROUTINE, False, True),
        (1, Pool.INTAKE, Lane.ROUTINE, False, False),
        (1, Pool.INFERENCE, Lane.ROUTINE, True, True),
        (0, Pool.INFERENCE, Lane.ROUTINE, True, False),
        (1, Pool.REPORTING, Lane.URGENT, True, False),
        (1, Pool.INTAKE, Lane.ROUTINE, True, False),
        (1, Pool.REPORTING, Lane.COMPENSATION, True, True),
    ],
)
def test_two_strikes_quarantine_and_a_lease_that_ran_out_in_company_proves_nothing(
    strikes: int, pool: Pool, lane: Lane, has_lapsed: bool, quarantined: bool
) -> None:
    assert is_poison(strikes, pool=pool, lane=lane, has_lapsed=has_lapsed) is quarantined
