"""The checker against histories made by hand: a clean one, and one that breaks each invariant."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from tests.faults.checker import CaseRow, EventRow, ResultRow, Seen, Verdict, check, longest_gap_s, longest_silence_s
from tests.faults.history import Outcome, Submit, answer_for, digest_of, lines, read_history

CASE, OTHER = UUID(int=1), UUID(int=2)
WAY = ("accepted", "fetching", "awaiting_inference", "inferring", "awaiting_report", "postprocessing", "completed")


def submit(case_id: UUID = CASE, outcome: Outcome = "ok") -> Submit:
    return Submit(case_id, f"image of {case_id}", 100.0, 100.1, outcome)


def events(case_id: UUID = CASE, way: tuple[str, ...] = WAY) -> list[EventRow]:
    return [
        EventRow(case_id, version, left, entered, 100.0 + version)
        for version, (left, entered) in enumerate(zip((None, *way), way, strict=False), start=1)
    ]


def row(case_id: UUID = CASE, state: str = "completed", result_version: int = 1) -> CaseRow:
    return CaseRow(case_id, state, result_version, accepted_at=100.0, ended_at=107.0 if state in ("completed", "failed") else None)


def result(case_id: UUID = CASE, version: int = 1, kind: str = "final") -> ResultRow:
    return ResultRow(case_id, version, kind, answer_for(f"image of {case_id}"))


CLEAN = Seen([row()], [result()], events())


def broken(verdict: Verdict) -> set[str]:
    return {violation.invariant for violation in verdict.violations}


def test_a_clean_run_is_clean() -> None:
    verdict = check([submit()], CLEAN, most_reexecuted=0)

    assert verdict == Verdict(cases=1, lost=0, double=0, late=0, unanswered=0, failed=0, reexecuted=0, violations=())


def test_a_promised_case_without_a_row_is_lost() -> None:
    verdict = check([submit(), submit(OTHER)], CLEAN)

    assert (verdict.lost, verdict.unanswered, broken(verdict)) == (1, 1, {"I1"})


@pytest.mark.parametrize(
    ("codes", "expected"),
    [(("lease-expired", "quarantined"), (0, 1)), (("suspects-company", "quarantined"), (1, 0)), (("lease-expired", "bad-value"), (1, 0))],
)
def test_who_died_twice_in_inference_was_quarantined_and_whoever_else_failed_did_wrongly(
    codes: tuple[str, str], expected: tuple[int, int]
) -> None:
    way = events(way=("accepted", "fetching", "awaiting_inference", "inferring", "awaiting_inference", "inferring", "failed"))
    coded = [replace(event, code=codes[event.entered == "failed"] if event.left == "inferring" else None) for event in way]

    verdict = check([submit()], Seen([row(state="failed", result_version=0)], [], coded))

    assert (verdict.failed, verdict.quarantined) == expected


@pytest.mark.parametrize("has_row", [False, True])
def test_an_unknown_submit_may_have_a_row_or_none(has_row: bool) -> None:
    verdict = check([submit(outcome="unknown")], CLEAN if has_row else Seen([], [], []))

    assert (verdict.cases, verdict.violations) == (0, ())


def test_a_failed_submit_must_have_no_row() -> None:
    assert broken(check([submit(outcome="fail")], CLEAN)) == {"I1"}


def test_a_case_must_not_have_two_rows() -> None:
    assert broken(check([submit()], replace(CLEAN, cases=[row(), row()]))) == {"I1"}


def test_a_row_that_nobody_asked_for_is_found() -> None:
    assert "I1" in broken(check([], CLEAN))


def test_a_case_that_is_still_open_is_lost_and_unanswered() -> None:
    verdict = check([submit()], Seen([row(state="fetching", result_version=0)], [], events(way=WAY[:2])))

    assert (verdict.lost, verdict.unanswered, broken(verdict)) == (1, 1, {"I2"})


def test_two_final_results_are_a_double() -> None:
    seen = replace(CLEAN, cases=[row(result_version=2)], results=[result(), result(version=2)])

    verdict = check([submit()], seen)

    assert (verdict.double, broken(verdict)) == (1, {"I3"})


def test_a_final_after_a_preliminary_is_no_double() -> None:
    seen = replace(CLEAN, cases=[row(result_version=2)], results=[result(kind="preliminary"), result(version=2)])

    verdict = check([submit()], seen)

    assert (verdict.double, verdict.violations) == (0, ())


@pytest.mark.parametrize("versions", [(2,), (1, 1), (1, 3)])
def test_result_versions_count_from_one_without_a_gap(versions: tuple[int, ...]) -> None:
    kinds = ("preliminary", "final")[-len(versions) :]
    results = [result(version=version, kind=kind) for version, kind in zip(versions, kinds, strict=True)]

    assert broken(check([submit()], replace(CLEAN, cases=[row(result_version=max(versions))], results=results))) == {"I3"}


def test_a_completed_case_has_a_result() -> None:
    verdict = check([submit()], replace(CLEAN, cases=[row(result_version=0)], results=[]))

    assert (verdict.unanswered, broken(verdict)) == (1, {"I3"})


def test_the_result_of_another_image_is_found() -> None:
    assert broken(check([submit()], replace(CLEAN, results=[replace(result(), digest=digest_of("another image"))]))) == {"I5"}


@pytest.mark.parametrize(
    "way",
    [
        ("accepted", "inferring", "completed"),
        ("fetching", "awaiting_report", "postprocessing", "completed"),
        (*WAY, "fetching", "awaiting_report", "postprocessing", "completed"),
    ],
    ids=["no such edge", "not from the start", "after the end"],
)
def test_an_event_that_is_no_edge_of_the_state_table_is_found(way: tuple[str, ...]) -> None:
    assert "I6" in broken(check([submit()], replace(CLEAN, events=events(way=way))))


def test_an_event_that_begins_elsewhere_than_the_last_ended_is_found() -> None:
    torn = [event for event in events() if event.entered != "inferring"]

    assert broken(check([submit()], replace(CLEAN, events=torn))) == {"I6"}


def test_a_row_that_disagrees_with_its_last_event_is_found() -> None:
    assert broken(check([submit()], replace(CLEAN, events=events(way=WAY[:-1])))) == {"I6"}


def test_two_completions_are_a_double() -> None:
    assert check([submit()], replace(CLEAN, events=[*events(), *events()])).double == 1


def test_work_done_again_is_counted_and_bounded() -> None:
    again = events(way=(*WAY[:2], "accepted", *WAY[1:]))

    assert check([submit()], replace(CLEAN, events=again), most_reexecuted=1).violations == ()
    verdict = check([submit()], replace(CLEAN, events=again), most_reexecuted=0)
    assert (verdict.reexecuted, broken(verdict)) == (1, {"I9"})


def test_a_coded_failure_is_an_answer_and_is_counted() -> None:
    verdict = check([submit()], Seen([row(state="failed", result_version=0)], [], events(way=("accepted", "fetching", "failed"))))

    assert (verdict.lost, verdict.unanswered, verdict.failed, verdict.violations) == (0, 0, 1, ())


def test_later_than_the_deadline_is_late() -> None:
    assert check([submit()], replace(CLEAN, cases=[replace(row(), ended_at=130.0)])).late == 0
    assert check([submit()], replace(CLEAN, cases=[replace(row(), ended_at=130.1)])).late == 1


def test_the_gap_runs_from_the_strike_to_the_next_claim() -> None:
    again = events(way=(*WAY[:2], "accepted", *WAY[1:]))

    assert longest_gap_s([101.0, 102.5, 110.0], again) == pytest.approx(1.5)
    assert longest_gap_s([110.0], again) is None


def test_the_silence_runs_until_a_case_that_came_after_the_strike_has_ended() -> None:
    later = CaseRow(OTHER, "completed", 1, accepted_at=103.0, ended_at=109.0)

    assert longest_silence_s([101.0], [row(), later]) == pytest.approx(8.0)
    assert longest_silence_s([105.0], [row(), later]) is None


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = [submit(), submit(OTHER, "unknown")]
    (tmp_path / "history.jsonl").write_text(lines(written), encoding="ascii")

    assert read_history(tmp_path / "history.jsonl") == written
