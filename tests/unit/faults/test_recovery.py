"""When throughput is back, on series of endings made by hand; and what is lost where a case was put off."""

from itertools import pairwise
from uuid import UUID

import pytest

from tests.faults.checker import CaseRow, EventRow, ResultRow, Seen
from tests.faults.product import judge_product
from tests.faults.recovery import WINDOW_S, back_after_s

STRUCK_AT, SINCE = 100.0, 90.0
CASE = UUID(int=1)


def endings(begin: float, end: float, *, a_second: int) -> list[float]:
    return [begin + number / a_second for number in range(round((end - begin) * a_second))]


def back(*parts: list[float], now: float = STRUCK_AT) -> float | None:
    return back_after_s([at for part in parts for at in part], STRUCK_AT, since=SINCE, now=now)


def test_throughput_is_back_at_the_end_of_the_first_whole_window() -> None:
    recovered_s = back(endings(SINCE, STRUCK_AT, a_second=10), endings(107.0, 115.0, a_second=10))

    # Nineteen of the twenty that ended in two seconds before.
    assert recovered_s == pytest.approx(7.0 + 0.9 * WINDOW_S)


def test_a_trickle_is_not_yet_throughput() -> None:
    assert back(endings(SINCE, STRUCK_AT, a_second=10), endings(102.0, 115.0, a_second=9)) is None


def test_what_ended_just_after_the_fault_does_not_count_with_what_ended_before_it() -> None:
    # Work that was past the model is still reported; the windows that it is seen in began before the kill.
    recovered_s = back(endings(SINCE, 100.5, a_second=10), endings(105.0, 115.0, a_second=20))

    assert recovered_s is not None
    assert recovered_s > 5.0


def test_a_fault_that_lasts_is_counted_from_its_end() -> None:
    recovered_s = back(endings(SINCE, STRUCK_AT, a_second=10), endings(140.0, 150.0, a_second=10), now=140.0)

    assert recovered_s is not None
    assert recovered_s <= WINDOW_S + 0.2


def test_an_answer_by_the_clock_without_a_move_breaks_no_edge_and_a_wrong_edge_does() -> None:
    way = (None, "accepted", "accepted", "deferred")
    events = [EventRow(CASE, number, left, entered, 100.0) for number, (left, entered) in enumerate(pairwise(way), start=1) if entered]
    row, answer = CaseRow(CASE, "deferred", 1, accepted_at=100.0, ended_at=None), ResultRow(CASE, 1, "preliminary", None)

    def broken(*of_case: EventRow) -> list[str]:
        verdict = judge_product([CASE], Seen([row], [answer], of_case), unanswered=0, most_reexecuted=0)
        return [violation.invariant for violation in verdict.violations]

    assert broken(*events) == []
    assert broken(events[0], events[1]) == ["I6"]


def test_a_case_that_was_answered_and_put_off_is_not_lost_and_one_without_an_answer_is() -> None:
    put_off = CaseRow(CASE, "deferred", 1, accepted_at=100.0, ended_at=None)
    silent = CaseRow(UUID(int=2), "awaiting_inference", 0, accepted_at=100.0, ended_at=None)
    promised = [CASE, UUID(int=2), UUID(int=3)]

    verdict = judge_product(promised, Seen([put_off, silent], [], []), unanswered=0, most_reexecuted=0)

    assert (verdict.cases, verdict.lost) == (2, 2)
