"""Results are handed on beside the next run: one batch at a time, in order, and a mistake is not swallowed."""

import threading

import pytest
from structlog.testing import capture_logs

from pipeline.errors import LedgerUnavailable
from workers.hand_over import HandOver

LIMIT_S = 30.0


def test_the_giver_goes_on_while_a_batch_is_handed_on_and_waits_for_it_with_the_next() -> None:
    over = HandOver(on_death=pytest.fail)
    first_may_end, events = threading.Event(), list[str]()

    def first() -> None:
        assert first_may_end.wait(LIMIT_S)
        events.append("first")

    over.give(first)
    events.append("went on")
    threading.Timer(0.05, first_may_end.set).start()
    over.give(lambda: events.append("second"))
    over.finish()

    assert events == ["went on", "first", "second"]


def test_finishing_where_nothing_is_under_way_returns_at_once() -> None:
    HandOver(on_death=pytest.fail).finish()


def test_a_ledger_that_is_away_is_said_and_the_next_batch_is_handed_on() -> None:
    over, done = HandOver(on_death=pytest.fail), list[int]()

    def away() -> None:
        raise LedgerUnavailable("away")

    with capture_logs() as logs:
        over.give(away)
        over.give(lambda: done.append(1))
        over.finish()

    assert [entry["event"] for entry in logs] == ["results_not_handed_on"]
    assert done == [1]


def test_a_mistake_of_ours_ends_the_process() -> None:
    deaths: list[int] = []
    over = HandOver(on_death=lambda: deaths.append(1))

    def mistaken() -> None:
        raise KeyError("mistake")

    over.give(mistaken)
    with pytest.raises(KeyError):
        over.finish()

    assert deaths == [1]
