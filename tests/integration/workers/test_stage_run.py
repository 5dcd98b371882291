"""What is done round every stage, on a real ledger: no work of a pool ends its process, and each case ends or waits alone."""

import json
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import text

from pipeline.errors import IdentityMismatch, LedgerUnavailable, RejectedInput, SourceBusy, SourceTimeout, TensorMissing
from pipeline.flow import Lane, Pool
from pipeline.persistence.ledger import sweep
from pipeline.persistence.ledger.claims import Claimed, Rung, claim_cases
from pipeline.persistence.ledger.engine import run
from pipeline.persistence.ledger.outcomes import Answer, Completion
from tests.integration.workers.stub_cases import StubCases, message_for
from tests.integration.workers.stub_work import StubReporting
from workers.endings import Written
from workers.stage_task import PoolRuntime, StageClock, run_stage

pytestmark = pytest.mark.services

CRASHES = [MemoryError, RecursionError, SystemExit, ValueError, AssertionError, StopIteration, ZeroDivisionError]
Spoil = Callable[[Claimed], object]


class Spoiled(StubReporting):
    """Does something else for some cases, in `do` or in its place in the commit."""

    def __init__(self, runtime: PoolRuntime, spoilt: dict[UUID, Spoil]) -> None:
        super().__init__(runtime)
        self._spoilt = spoilt

    def do(self, case: Claimed, clock: StageClock) -> Completion:
        if case.case_id in self._spoilt:
            self._spoilt[case.case_id](case)
        return super().do(case, clock)


def raising(error: BaseException) -> Spoil:
    def spoil(_case: Claimed) -> None:
        raise error

    return spoil


def ended(outcome: str) -> float:
    return REGISTRY.get_sample_value("secondread_attempts_total", {"stage": "postprocess", "outcome": outcome}) or 0.0


def run_group(runtime: PoolRuntime, rungs: Sequence[Rung], work: StubReporting) -> None:
    run_stage(runtime, message_for(Pool.REPORTING, rungs), work)


@pytest.mark.parametrize("error", CRASHES)
@pytest.mark.parametrize("count", [1, 3])
def test_a_stage_that_raises_anything_leaves_the_process_alive_and_its_case_is_put_back(
    runtime: PoolRuntime, cases: StubCases, error: type[BaseException], count: int
) -> None:
    rungs = cases.waiting(Pool.REPORTING, count)
    sick, *well = [rung.case_id for rung in rungs]
    crashed = ended("crashed")

    run_group(runtime, rungs, Spoiled(runtime, {sick: raising(error("a patient's name"))}))

    row = cases.rows()[sick]
    assert (row.state, row.claimed_by, row.tries, row.strikes, row.is_delayed) == ("awaiting_report", None, 1, 1, True)
    assert cases.said(sick) == (0, 0, 0)
    assert [cases.said(case_id) for case_id in well] == [(1, 1, 1)] * (count - 1)
    assert ended("crashed") == crashed + 1


@pytest.mark.parametrize("error", CRASHES)
def test_a_commit_that_raises_anything_leaves_the_process_alive_and_the_cases_are_put_back(
    runtime: PoolRuntime, cases: StubCases, error: type[BaseException]
) -> None:
    class BadCommit(StubReporting):
        def write(self, done: Sequence[Completion]) -> Written:
            raise error("a patient's name")

    rungs = cases.waiting(Pool.REPORTING, 3)

    run_group(runtime, rungs, BadCommit(runtime))

    assert {(row.state, row.tries, row.is_delayed) for row in cases.rows().values()} == {("awaiting_report", 1, True)}


def test_of_one_group_each_case_ends_or_waits_alone(runtime: PoolRuntime, cases: StubCases) -> None:
    rungs = cases.waiting(Pool.REPORTING, 8)
    rejected, crashed, overtaken, away, homeless, *well = [rung.case_id for rung in rungs]
    before = {outcome: ended(outcome) for outcome in ("rejected", "crashed", "unavailable", "superseded", "done")}

    def overtake(case: Claimed) -> None:
        cases.lapse()
        (taken,) = claim_cases(runtime.services.ledger, [case.case_id], pool=Pool.REPORTING, worker="other", seen_no=0)
        assert taken.attempt == case.attempt + 1

    spoilt = {
        rejected: raising(RejectedInput("it cannot be read", size=7)),
        crashed: raising(MemoryError()),
        overtaken: overtake,
        away: raising(LedgerUnavailable()),
        homeless: raising(TensorMissing()),
    }
    run_group(runtime, rungs, Spoiled(runtime, spoilt))

    assert cases.states() == {
        rejected: "failed",
        crashed: "awaiting_report",
        overtaken: "postprocessing",
        away: "awaiting_report",
        homeless: "accepted",
        **dict.fromkeys(well, "completed"),
    }
    rows = cases.rows()
    assert (rows[rejected].failure["code"], rows[rejected].failure["facts"]) == ("rejected", {"size": "7"})
    assert (rows[overtaken].claimed_by, rows[overtaken].attempt) == ("other", 3)
    assert [cases.said(case_id) for case_id in (rejected, crashed, overtaken, away, homeless)] == [(0, 1, 0), *[(0, 0, 0)] * 4]
    assert [cases.said(case_id) for case_id in well] == [(1, 1, 1)] * 3
    counted = {outcome: ended(outcome) - was for outcome, was in before.items()}
    assert counted == {"rejected": 1, "crashed": 1, "unavailable": 2, "superseded": 1, "done": 3}


def test_a_commit_that_one_case_spoils_is_done_again_one_by_one(runtime: PoolRuntime, cases: StubCases) -> None:
    rungs = cases.waiting(Pool.REPORTING, 5)
    spoiler = rungs[2].case_id

    class OneUnwritable(StubReporting):
        def do(self, case: Claimed, clock: StageClock) -> Completion:
            done = super().do(case, clock)
            if case.case_id != spoiler:
                return done
            # PostgreSQL takes no zero byte.
            return Completion(done.case_id, done.attempt, Answer(1, "final", "nothing_found", "\0"), done.timeline, done.callback)

    work = OneUnwritable(runtime)
    run_group(runtime, rungs, work)

    assert work.commits == [5, 1, 1, 1, 1, 1]
    others = [rung.case_id for rung in rungs if rung.case_id != spoiler]
    assert [cases.said(case_id) for case_id in others] == [(1, 1, 1)] * 4
    assert cases.said(spoiler) == (0, 0, 0)
    assert (cases.states()[spoiler], cases.rows()[spoiler].tries) == ("awaiting_report", 1)


def test_when_the_ledger_is_away_at_the_commit_all_are_put_back_and_nothing_is_tried_again_at_once(
    runtime: PoolRuntime, cases: StubCases
) -> None:
    class Away(StubReporting):
        def write(self, done: Sequence[Completion]) -> Written:
            self.commits.append(len(done))
            raise LedgerUnavailable("it does not answer")

    rungs = cases.waiting(Pool.REPORTING, 4)
    work = Away(runtime)

    run_group(runtime, rungs, work)

    assert work.commits == [4]
    rows = {(row.state, row.tries, row.strikes, row.is_delayed, row.claimed_by) for row in cases.rows().values()}
    assert rows == {("awaiting_report", 1, 0, True, None)}


@pytest.mark.parametrize(
    "changed",
    [
        {"schema_version": 0},
        {"schema_version": 2, "case_ids": None},
        {"case_ids": []},
        {"case_ids": ["not an id"]},
        {"case_ids": [str(UUID(int=number)) for number in range(9)]},
        {"publish_no": -1},
        {"deadline_at": "2026-01-02T12:00:00"},
        {"patient": "somebody"},
        {"stage": "x" * 33},
    ],
)
def test_a_message_that_is_not_one_of_ours_is_refused_without_effect(
    runtime: PoolRuntime, cases: StubCases, changed: dict[str, Any]
) -> None:
    rungs = cases.waiting(Pool.REPORTING, 2)
    before, work = cases.rows(), StubReporting(runtime)

    run_stage(runtime, message_for(Pool.REPORTING, rungs) | changed, work)
    run_stage(runtime, {}, work)

    assert (work.did, cases.rows()) == ([], before)


def count_of(name: str) -> float:
    return REGISTRY.get_sample_value(f"secondread_messages_{name}_total") or 0.0


def test_a_doorbell_of_the_next_version_is_answered_and_counted(runtime: PoolRuntime, cases: StubCases) -> None:
    rungs, work, before = cases.waiting(Pool.REPORTING, 2), StubReporting(runtime), count_of("newer")

    run_stage(runtime, message_for(Pool.REPORTING, rungs) | {"schema_version": 2, "hurry": True}, work)

    assert set(cases.states().values()) == {"completed"}
    assert count_of("newer") == before + 1


def test_a_case_whose_doorbell_cannot_be_read_waits_until_it_is_rung_again(runtime: PoolRuntime, cases: StubCases) -> None:
    rungs, work, before = cases.waiting(Pool.REPORTING, 1), StubReporting(runtime), count_of("refused")
    run_stage(runtime, {"schema_version": 2, "where_to_look": [rungs[0].case_id.hex]}, work)
    cases.age()

    assert (cases.states()[rungs[0].case_id], count_of("refused")) == ("awaiting_report", before + 1)
    again = sweep.ring_overtaken(cases.ledger, Pool.REPORTING, seen_nos=dict.fromkeys(Lane, 2**60), limit=10)
    run_stage(runtime, message_for(Pool.REPORTING, again), work)
    assert set(cases.states().values()) == {"completed"}


def test_a_case_that_newer_code_has_prepared_is_read_without_what_is_not_known_here(runtime: PoolRuntime, cases: StubCases) -> None:
    rungs, work = cases.waiting(Pool.REPORTING, 1), StubReporting(runtime)
    prepared = {"model": "m:1", "instances": [], "images": [], "priority_hint": 1}
    added = json.dumps({"prepared": prepared, "triage": {"score": 0.5}})
    run(cases.ledger.relaxed, text('UPDATE cases SET work = CAST(:added AS jsonb), input = input || \'{"origin": "pacs"}\''), added=added)

    run_stage(runtime, message_for(Pool.REPORTING, rungs), work)

    assert set(cases.states().values()) == {"completed"}


def test_messages_that_come_three_times_in_any_order_have_one_effect(runtime: PoolRuntime, cases: StubCases) -> None:
    rungs = cases.waiting(Pool.REPORTING, 60)
    messages = [rungs[first : first + 4] for first in range(0, 60, 4)] * 3
    random.Random(7).shuffle(messages)
    work = StubReporting(runtime)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda group: run_group(runtime, group, work), messages))

    assert sorted(work.did) == sorted(rung.case_id for rung in rungs)
    assert {cases.said(rung.case_id) for rung in rungs} == {(1, 1, 1)}


def test_what_belongs_to_another_case_is_withheld_and_counted(runtime: PoolRuntime, cases: StubCases) -> None:
    rungs = cases.waiting(Pool.REPORTING, 3)
    hop = {"hop": "postprocess"}
    before = REGISTRY.get_sample_value("secondread_identity_mismatch_total", hop) or 0.0

    run_group(runtime, rungs, Spoiled(runtime, {rungs[1].case_id: raising(IdentityMismatch("another case's"))}))

    assert REGISTRY.get_sample_value("secondread_identity_mismatch_total", hop) == before + 1
    assert cases.rows()[rungs[1].case_id].failure["code"] == "identity-mismatch"
    assert [cases.said(rung.case_id)[0] for rung in rungs] == [1, 0, 1]


def test_a_case_whose_stage_used_up_its_time_is_not_tried_again_before_its_deadline(runtime: PoolRuntime, cases: StubCases) -> None:
    rungs = cases.waiting(Pool.REPORTING, 2)
    late, well = (rung.case_id for rung in rungs)
    before = ended("out-of-time")

    run_group(runtime, rungs, Spoiled(runtime, {late: raising(SourceTimeout())}))

    row = cases.rows()[late]
    assert (row.state, row.claimed_by, row.tries) == ("awaiting_report", None, 1)
    # Workers' clocks and the database's differ by little.
    assert abs((row.due_at - row.deadline_at).total_seconds()) < 5
    assert cases.said(well) == (1, 1, 1)
    assert ended("out-of-time") == before + 1


def test_a_put_off_case_that_is_late_again_waits_for_its_next_try(runtime: PoolRuntime, cases: StubCases) -> None:
    rungs = cases.waiting(Pool.REPORTING, 1)
    cases.to_compensation()

    run_group(runtime, rungs, Spoiled(runtime, {rungs[0].case_id: raising(SourceTimeout())}))

    row = cases.rows()[rungs[0].case_id]
    assert (row.state, row.deferred_because, row.claimed_by) == ("deferred", "source-timeout", None)


def test_a_case_whose_source_is_busy_with_others_is_charged_no_try(runtime: PoolRuntime, cases: StubCases) -> None:
    rungs = cases.waiting(Pool.REPORTING, 1)

    run_group(runtime, rungs, Spoiled(runtime, {rungs[0].case_id: raising(SourceBusy())}))

    row = cases.rows()[rungs[0].case_id]
    assert (row.state, row.tries, row.is_delayed) == ("awaiting_report", 0, True)
