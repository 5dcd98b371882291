"""The ledger's clock in a process whose own clock may say anything."""

from datetime import UTC, datetime

import pytest
from sqlalchemy import text

from pipeline.errors import LedgerUnavailable
from pipeline.persistence.ledger.clock import REREAD_S, LedgerClock
from pipeline.persistence.ledger.engine import Ledger, run

pytestmark = pytest.mark.services

NEAR_S = 1.0
"""Two questions, one after the other, on a slow machine."""


class Monotonic:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def monotonic() -> Monotonic:
    return Monotonic()


def database_now(ledger: Ledger) -> datetime:
    now: datetime = run(ledger.relaxed, text("SELECT clock_timestamp() AS now"))[0].now
    return now


def test_it_tells_the_databases_time_whatever_this_hosts_clock_says(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 0.0)

    now = LedgerClock(ledger).now()

    assert now.tzinfo is UTC
    assert abs((database_now(ledger) - now).total_seconds()) < NEAR_S


def test_between_two_looks_it_runs_with_the_monotonic_clock(ledger: Ledger, monotonic: Monotonic) -> None:
    clock = LedgerClock(ledger, monotonic=monotonic)
    begun_s = clock.unix_s()

    monotonic.at += REREAD_S - 1.0

    assert clock.unix_s() - begun_s == pytest.approx(REREAD_S - 1.0)


def test_it_is_put_right_when_the_next_look_is_due(ledger: Ledger, monotonic: Monotonic) -> None:
    clock = LedgerClock(ledger, monotonic=monotonic)
    clock.now()

    # Monotonic seconds that the database did not see: as if its clock had been set back by as much.
    monotonic.at += REREAD_S

    assert abs((database_now(ledger) - clock.now()).total_seconds()) < NEAR_S


def test_a_ledger_that_is_away_does_not_stop_it(ledger: Ledger, ledger_away: Ledger, monotonic: Monotonic) -> None:
    clock = LedgerClock(ledger, monotonic=monotonic)
    begun_s = clock.unix_s()
    clock._ledger = ledger_away

    monotonic.at += 3 * REREAD_S

    assert clock.unix_s() - begun_s == pytest.approx(3 * REREAD_S)


def test_a_ledger_that_was_never_there_tells_no_time(ledger_away: Ledger) -> None:
    with pytest.raises(LedgerUnavailable):
        LedgerClock(ledger_away).now()
