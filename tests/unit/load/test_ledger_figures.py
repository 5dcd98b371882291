"""The figures of `make ledger` against readings made by hand."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.faults.checker import Verdict
from tests.load import ledger_cost, ledger_table
from tests.load.in_flight import Wait
from tests.load.ledger_figures import Cost, Outcome, Third, Waits, cost_of, is_flat, shortfalls, waits_between
from tests.load.ledger_readings import Counters, Sample, TableState

FIRST = Counters(
    at=100.0,
    completed=1_000,
    machine_busy_s=500.0,
    cpu_s={"intake": 5.0, "postgres": 7.0},
    loop_cpu_s={"intake": 2.0},
    backend_cpu_s={"intake": 1.0},
    commits=10_000,
    wal_bytes=5_000_000,
    wal_page_images=40,
    wal_fsyncs=700,
    updates=6_000,
    hot_updates=3_000,
    redis_commands=9_000,
)
LAST = Counters(
    at=110.0,
    completed=3_000,
    machine_busy_s=509.0,
    cpu_s={"intake": 9.0, "postgres": 11.0},
    loop_cpu_s={"intake": 3.0},
    backend_cpu_s={"intake": 2.0, "door": 0.5},
    commits=14_000,
    wal_bytes=25_000_000,
    wal_page_images=240,
    wal_fsyncs=1_700,
    updates=18_000,
    hot_updates=12_000,
    redis_commands=29_000,
)


def sample(number: int, dead_rows: int) -> Sample:
    table = TableState(dead_rows, bytes=1_000 * (1 + number), index_bytes=200 * (1 + number), vacuums=number // 2)
    return Sample(100.0 + number, 1_000 + 200 * number, {"cases": table})


SAMPLES = [sample(number, dead_rows) for number, dead_rows in enumerate((9_000, 10, 30, 20, 60, 50, 40))]
COST = cost_of(FIRST, LAST, SAMPLES)
WAITS = Waits(100, 20.0, 30.0, 5.0, 1.0)
VERDICT = Verdict(cases=2_000, lost=0, double=0, late=0, unanswered=0, failed=0, reexecuted=0, violations=())
OUTCOME = Outcome(2, 64, WAITS, WAITS, COST, VERDICT, sent_again=0, exits=0)


def test_the_cost_of_a_case_is_the_difference_of_two_readings() -> None:
    assert (COST.cases, COST.seconds, COST.cases_per_s) == (2_000, 10.0, 200.0)
    assert COST.cpu_ms == {"intake": 2.0, "postgres": 2.0}
    assert COST.all_cpu_ms == 4.0
    # Nine seconds of the machine, eight of them ours, in ten.
    assert COST.cores_of_others == 0.1
    assert COST.loop_ms == {"intake": 0.5}
    # The door's connection was opened in between.
    assert COST.backend_ms == {"intake": 0.5, "door": 0.25}
    assert (COST.commits, COST.redis_commands, COST.wal_bytes, COST.wal_page_images, COST.wal_fsyncs) == (2.0, 10.0, 10_000.0, 0.1, 0.5)
    assert COST.hot_share == 0.75


def test_the_window_is_cut_into_thirds() -> None:
    # What was there when it began (9,000) belongs to none.
    assert [third.most_dead_rows for third in COST.thirds] == [{"cases": 30}, {"cases": 60}, {"cases": 50}]
    assert [third.cases_per_s for third in COST.thirds] == [200.0, 200.0, 200.0]
    assert [third.vacuums for third in COST.thirds] == [1, 1, 1]
    assert COST.thirds[2].bytes_a_case == {"cases": 8_400 / 2_200}


@pytest.mark.parametrize(("dead_rows", "expected"), [((0, 4_000, 6_000), True), ((0, 4_000, 6_001), False), ((9_000, 10, 1_000), True)])
def test_dead_rows_may_swing_by_half_and_not_rise(dead_rows: tuple[int, int, int], expected: bool) -> None:
    one, two, three = (Third(200.0, {"cases": count}, 0, {"cases": 1.0}) for count in dead_rows)

    assert is_flat((one, two, three), "cases") is expected


def test_a_run_that_reaches_its_bars_falls_short_of_nothing() -> None:
    assert shortfalls(OUTCOME) == []


def changed(**parts: object) -> Outcome:
    cost: Cost = replace(COST, **parts)  # type: ignore[arg-type]
    return replace(OUTCOME, cost=cost)


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (changed(cases_per_s=149.0), "149 cases/s, bar 150"),
        (changed(cpu_ms={"intake": 13.0, "postgres": 0.4}), "13.4 CPU ms a case, bar 13.3"),
        (
            changed(thirds=tuple(replace(third, most_dead_rows={"cases": 2_000 * 3**n}) for n, third in enumerate(COST.thirds))),
            "dead rows of cases rise: at most 2,000, 6,000, 18,000 in the thirds of the run",
        ),
        (replace(OUTCOME, verdict=replace(VERDICT, lost=1)), "1 cases lost, 0 doubled, 0 failed, 0 unanswered; 0 invariants broken"),
        (replace(OUTCOME, sent_again=3), "without a fault 3 doorbells were sent again, 0 claims made again, 0 workers ended"),
    ],
)
def test_what_falls_short_is_said(outcome: Outcome, said: str) -> None:
    assert shortfalls(outcome) == [said]


def test_waits_count_from_the_moment_that_was_planned() -> None:
    # Sent 3 ms late, committed 5 ms later, answered 10 to 19 ms after it was due; the last is outside of the window.
    waits = [Wait(float(n), n + 0.003, n + 0.008, n + 0.010 + 0.001 * n) for n in range(10)] + [Wait(50.0, 50.0, 50.0, 90.0)]

    found = waits_between(waits, 0.0, 60.0)

    assert found.count == 10
    assert found.p50_ms == pytest.approx(14.5)
    assert found.accepted_p50_ms == pytest.approx(5.0)
    assert found.late_p99_ms == pytest.approx(3.0)


def test_the_page_takes_the_figures_between_its_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("Before.\n{}\nold\n{}\nAfter.\n".format(*ledger_table.MARKS))
    monkeypatch.setattr(ledger_table, "PAGE", page)

    ledger_table.write_page(OUTCOME, ["too little"], "make ledger")

    begin, end = page.read_text().split(ledger_table.MARKS[0])[0], page.read_text().split(ledger_table.MARKS[1])[1]
    assert (begin, end) == ("Before.\n", "\nAfter.\n")
    assert "**Falls short**: too little." in page.read_text()
    assert "| CPU ms a case, all processes | 4.0 | <= 13.3 |" in page.read_text()
    assert "old" not in page.read_text()


def test_all_figures_are_kept_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_cost, "REPORT", tmp_path / "build" / "ledger.json")

    ledger_cost.write(OUTCOME, ["too little"], "make ledger")

    facts = json.loads(ledger_cost.REPORT.read_text())
    assert (facts["shortfalls"], facts["cost"]["cases_per_s"], facts["cost"]["all_cpu_ms"]) == (["too little"], 200.0, 4.0)


def test_the_table_comes_last(capsys: pytest.CaptureFixture[str]) -> None:
    ledger_table.show(OUTCOME, ["too little"], Console(width=120))

    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "too little"
    assert shown[-1].startswith("\N{BOX DRAWINGS LIGHT UP AND RIGHT}")
