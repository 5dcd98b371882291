"""Figures, bars and verdicts of the measuring commands, and what they make of raw readings."""

import json
import math
from pathlib import Path

import pytest

from tests.load.article.scale import COST, DEADLINE_S, PHASES
from tests.load.bench.device import pace
from tests.load.bench.goodput import in_time
from tests.load.figures import Figure, percentile, shortfalls, write
from tests.load.open_clients import Answer


@pytest.mark.parametrize(
    ("least", "most", "value", "is_met"),
    [
        (None, None, 1.0, True),
        (2.0, None, 2.0, True),
        (2.0, None, 1.9, False),
        (None, 2.0, 2.0, True),
        (None, 2.0, 2.1, False),
        (2.0, None, math.nan, False),
        (None, 2.0, math.nan, False),
    ],
)
def test_a_bar_is_reached_or_not(least: float | None, most: float | None, value: float, is_met: bool) -> None:
    figure = Figure("a", "b", value, least=least, most=most)

    assert figure.is_met is is_met
    assert bool(shortfalls([figure])) is not is_met


def test_what_is_short_is_said_with_its_bar() -> None:
    assert shortfalls([Figure("latency", "P99", 2.5, "s", most=1.4)]) == ["latency: P99 is 2.5 s, bar <= 1.4"]


def test_the_file_holds_every_figure_and_its_verdict(tmp_path: Path) -> None:
    write(tmp_path / "build" / "x.json", [Figure("a", "b", 3.0, most=2.0), Figure("a", "c", 1.0)], command="make x", cores=2)
    found = json.loads((tmp_path / "build" / "x.json").read_text())

    assert [row["is_met"] for row in found["figures"]] == [False, None]
    assert (found["command"], found["cores"], len(found["shortfalls"])) == ("make x", 2, 1)


def test_a_percentile_is_one_of_the_values() -> None:
    assert [percentile(list(range(200)), percent) for percent in (50, 99)] == [100, 198]
    assert percentile([7.0], 99) == 7.0
    assert math.isnan(percentile([], 50))


def test_the_pace_of_a_device_is_counted_between_the_ends_of_its_batches() -> None:
    # Sixteen images every 0.8 s; what comes in the first seconds, and the first batch after them, do not count.
    batches = [(100.0, 3), (101.0, 1)] + [(102.4 + 0.8 * number, 16) for number in range(11)]

    assert pace(batches) == pytest.approx((20.0, 16.0))


def test_in_time_are_readings_that_were_due_in_the_window_and_came_within_the_deadline() -> None:
    answers = [
        Answer(10.0, 10.0, 12.9, is_final=True),
        Answer(11.0, 11.0, 14.1, is_final=True),
        Answer(12.0, 12.0, 12.1, is_final=False),
        Answer(9.9, 9.9, 10.0, is_final=True),
        Answer(20.0, 20.0, 20.1, is_final=True),
    ]
    assert in_time(answers, 10.0, 20.0) == 0.1


def test_the_article_is_ten_times_as_fast() -> None:
    assert (COST.mean_s(1), COST.mean_s(16), DEADLINE_S) == pytest.approx((0.75, 1.05, 3.0))
    assert [round(phase.rate, 2) for phase in PHASES] == [6.33, 20.67, 55.0]
    # 4 devices x 16 images: the highest of these loads is nine tenths of what they can do.
    assert PHASES[-1].rate / (4 * 16 / COST.mean_s(16)) == pytest.approx(0.90, abs=0.005)
