import re
from collections.abc import Callable
from typing import Any

from rich.console import Console, RenderableType

from schemas.api import CaseView, TimelineView
from schemas.report import Report
from workers.cli.view.findings import findings_table, largest_finding, outcome_of, reading_cells, report_of, sentence_of, size_text
from workers.cli.view.timeline import stage_times_text, stages_table, total_ms

MakeReport = Callable[..., dict[str, Any]]
MakeCase = Callable[..., CaseView]
MakeTimeline = Callable[..., TimelineView]


def drawn(what: RenderableType) -> str:
    console = Console(width=100, record=True, quiet=True)
    with console.capture() as capture:
        console.print(what)
    console.quiet = False
    with console.capture() as capture:
        console.print(what)
    return capture.get()


def test_a_case_without_an_answer_says_where_it_stands(make_case: MakeCase) -> None:
    case = make_case(status="inferring", result_version=0)
    assert (outcome_of(case), sentence_of(case)) == ("inferring", "No answer yet.")


def test_a_failed_case_says_why(make_case: MakeCase) -> None:
    case = make_case(status="failed", failure={"code": "empty", "title": "The instance is empty", "advice": "Send it again."})
    assert (outcome_of(case), sentence_of(case)) == ("failed", "The instance is empty.")


def test_a_preliminary_answer_is_called_one(make_case: MakeCase, report_body: MakeReport) -> None:
    assert sentence_of(make_case(result=report_body(kind="preliminary"))) == "Preliminary: One sentence."


def test_the_largest_finding_speaks_for_the_case(report_body: MakeReport) -> None:
    report = Report.model_validate(report_body("findings", (4.0, 2.0, "mm"), (23.06, 13.8, "mm")))
    assert reading_cells(report) == ("23.1 x 13.8 mm", "0.97", "malignancy 0.250\npresence 0.990")


def test_a_finding_in_millimetres_comes_before_one_in_pixels(report_body: MakeReport) -> None:
    found = largest_finding(Report.model_validate(report_body("findings", (400.0, 200.0, "px"), (4.0, 2.0, "mm"))))
    assert found is not None
    assert size_text(found[1]) == "4.0 x 2.0 mm"


def test_where_nothing_was_found_the_scores_are_still_shown(report_body: MakeReport) -> None:
    assert reading_cells(Report.model_validate(report_body("nothing_found"))) == ("", "", "malignancy 0.250\npresence 0.990")


def test_a_report_of_a_newer_door_is_read_too(make_case: MakeCase, report_body: MakeReport) -> None:
    report = report_of(make_case(result=report_body(second_opinion="none")))
    assert report is not None
    assert report.summary == "One sentence."


def test_every_finding_has_a_row_within_a_hundred_columns(report_body: MakeReport) -> None:
    text = drawn(findings_table(Report.model_validate(report_body("findings", (23.0, 13.0, "mm"), (4.0, 2.0, "mm")))))
    assert "23.0 x 13.0 mm" in text
    assert "4.0 x 2.0 mm" in text
    assert max(map(len, text.splitlines())) <= 100


def test_the_bars_lie_where_the_time_went(make_timeline: MakeTimeline) -> None:
    # 100 ms are 50 columns: waits of 0, 40, 0, 20 ms, work of 0, 10, 10, 20 ms.
    timeline = make_timeline((0, 0), (40, 10), (0, 10), (20, 20), None, None, None)
    lines = {line.split()[0]: line for line in drawn(stages_table(timeline)).splitlines() if line.strip()}
    bars = {name: re.sub(r"^.*?(?=[·█▏]| {20}[█])", "", line).rstrip() for name, line in lines.items() if name in {"fetch", "infer"}}
    assert total_ms(timeline.stages) == 100
    assert bars["fetch"] == "·" * 20 + "█" * 5
    assert bars["infer"] == "·" * 10 + "█" * 10
    assert "not reached" in lines["deliver"]


def test_a_stage_of_no_length_is_still_seen(make_timeline: MakeTimeline) -> None:
    assert "▏" in drawn(stages_table(make_timeline((0, 0), (40, 0))))


def test_a_case_that_is_only_accepted_has_a_chart(make_timeline: MakeTimeline) -> None:
    assert "not reached" in drawn(stages_table(make_timeline((0, 0), None, None, None, None, None, None)))
    assert total_ms(make_timeline(None, None).stages) == 0


def test_the_times_of_a_stage_fit_in_a_cell(make_timeline: MakeTimeline) -> None:
    timeline = make_timeline((0, 0), (12, 3), None)
    assert [stage_times_text(stage) for stage in timeline.stages] == ["0+0", "12+3", "-"]
