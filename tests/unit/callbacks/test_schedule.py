"""The retry schedule, restated from the promise: attempts at 0, 5 s, 30 s, ... over about 3.2 days."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.callbacks.schedule import next_attempt_at

PROMISED = [
    timedelta(0),
    timedelta(seconds=5),
    timedelta(seconds=30),
    timedelta(minutes=2),
    timedelta(minutes=10),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=5),
    timedelta(hours=10),
    timedelta(hours=14),
    timedelta(hours=20),
    timedelta(hours=24),
]
NOON = datetime.fromisoformat("2026-01-02T12:00:00+00:00")


def middle() -> float:
    return 0.5


@pytest.mark.parametrize(("attempts_made", "delay"), list(enumerate(PROMISED)))
def test_each_attempt_waits_as_promised(attempts_made: int, delay: timedelta) -> None:
    assert next_attempt_at(attempts_made, now=NOON, jitter=middle) == NOON + delay


def test_a_delay_is_spread_by_a_fifth_either_way() -> None:
    earliest = next_attempt_at(3, now=NOON, jitter=lambda: 0.0)
    latest = next_attempt_at(3, now=NOON, jitter=lambda: 1.0)

    assert (earliest, latest) == (NOON + timedelta(seconds=96), NOON + timedelta(seconds=144))


@given(attempts_made=st.integers(0, 11), chance=st.floats(0, 1), asked_s=st.none() | st.floats(0, 1e9))
def test_no_attempt_is_early_or_later_than_spread_and_receiver_allow(attempts_made: int, chance: float, asked_s: float | None) -> None:
    due_at = next_attempt_at(attempts_made, now=NOON, jitter=lambda: chance, retry_after_s=asked_s)

    assert due_at is not None
    waited_s = (due_at - NOON).total_seconds()
    promised_s = PROMISED[attempts_made].total_seconds()
    assert waited_s >= min(asked_s or 0.0, 3600.0) - 1e-6
    assert 0.8 * promised_s - 1e-6 <= waited_s <= max(1.2 * promised_s, 3600.0) + 1e-6


def test_retry_after_lengthens_a_delay_and_never_shortens_one() -> None:
    longer = next_attempt_at(1, now=NOON, jitter=middle, retry_after_s=20.0)
    shorter = next_attempt_at(6, now=NOON, jitter=middle, retry_after_s=20.0)

    assert (longer, shorter) == (NOON + timedelta(seconds=20), NOON + timedelta(hours=2))


def test_a_receiver_can_ask_for_an_hour_at_most() -> None:
    assert next_attempt_at(1, now=NOON, jitter=middle, retry_after_s=86_400.0) == NOON + timedelta(hours=1)


@pytest.mark.parametrize("attempts_made", [12, 13, 1000])
def test_after_twelve_attempts_the_message_is_dead(attempts_made: int) -> None:
    assert next_attempt_at(attempts_made, now=NOON, jitter=middle, retry_after_s=5.0) is None


def test_a_receiver_has_three_days_and_a_bit_to_come_back() -> None:
    now, attempts_made = NOON, 0
    while (due_at := next_attempt_at(attempts_made, now=now, jitter=middle)) is not None:
        now, attempts_made = due_at, attempts_made + 1

    assert attempts_made == 12
    assert timedelta(days=3.1) < now - NOON < timedelta(days=3.3)
