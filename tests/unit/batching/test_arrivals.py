"""How soon the next case may come, by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.batching.arrivals import Arrivals


def seen(*events: tuple[float, int]) -> Arrivals:
    arrivals = Arrivals()
    for at, count in events:
        arrivals.saw(count, at)
    return arrivals


@pytest.mark.parametrize("arrivals", [seen(), seen((5.0, 1)), seen((5.0, 16))], ids=["none", "one", "one batch"])
def test_nobody_is_expected_before_two_arrivals(arrivals: Arrivals) -> None:
    assert arrivals.hazard(6.0) == 0.0


def test_two_arrivals_give_the_rate_of_their_gap() -> None:
    assert seen((10.0, 1), (10.5, 1)).hazard(10.5) == pytest.approx(2.0)


def test_cases_that_come_together_share_the_gap() -> None:
    assert seen((10.0, 1), (12.0, 4)).hazard(12.0) == pytest.approx(2.0)


def test_a_new_gap_counts_for_an_eighth() -> None:
    # A mean of 1 s, then 2 s: 1 + (2 - 1) / 8.
    assert seen((0.0, 1), (1.0, 1), (3.0, 1)).gap_s == pytest.approx(1.125)


def test_eight_cases_at_once_replace_what_was_known() -> None:
    assert seen((0.0, 1), (1.0, 1), (5.0, 8)).gap_s == pytest.approx(0.5)


def test_silence_up_to_the_mean_gap_changes_nothing() -> None:
    arrivals = seen((0.0, 1), (2.0, 1))

    assert arrivals.hazard(2.0) == arrivals.hazard(4.0) == pytest.approx(0.5)


def test_a_longer_silence_fades_the_rate_with_its_square() -> None:
    # Mean gap 2 s, silent for 8 s: 2 / 64.
    assert seen((0.0, 1), (2.0, 1)).hazard(10.0) == pytest.approx(2 / 64)


def test_nobody_who_joins_is_no_arrival() -> None:
    assert seen((10.0, 1), (12.0, 1), (13.0, 0)) == seen((10.0, 1), (12.0, 1))


def test_a_clock_that_jumps_back_is_no_negative_gap() -> None:
    assert seen((10.0, 1), (9.0, 1)).gap_s == 0.0


@given(
    events=st.lists(st.tuples(st.floats(0, 100), st.integers(1, 16)), min_size=2, max_size=30),
    first_s=st.floats(0, 100),
    more_s=st.floats(0, 100),
)
def test_the_rate_is_bounded_and_never_rises_in_silence(events: list[tuple[float, int]], first_s: float, more_s: float) -> None:
    arrivals = seen(*sorted(events))
    last_at = max(at for at, _ in events)

    early, late = arrivals.hazard(last_at + first_s), arrivals.hazard(last_at + first_s + more_s)

    assert 0 <= late <= early * (1 + 1e-9)
    assert early <= 10_000 * (1 + 1e-9)
