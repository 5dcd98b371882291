"""What is too late to be finished is not begun, on a real ledger; and who takes it over."""

from uuid import UUID

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import text

from pipeline.errors import OutOfTime
from pipeline.flow import Pool
from pipeline.persistence.ledger.claims import Claimed
from pipeline.persistence.ledger.engine import run
from pipeline.persistence.ledger.guard import owed_cases
from pipeline.persistence.ledger.outcomes import Completion
from tests.integration.workers.stub_cases import StubCases, message_for
from tests.integration.workers.stub_work import StubReporting
from workers.stage_task import LATER_S, PoolRuntime, StageClock, run_stage

pytestmark = pytest.mark.services


def expired() -> float:
    return REGISTRY.get_sample_value("secondread_expired_at_stage_total", {"stage": "postprocess"}) or 0.0


def owed_to(runtime: PoolRuntime) -> dict[UUID, bool]:
    """Whom the guard would answer now, and whether it would put them off."""
    return {case.case_id: case.is_put_off for case in owed_cases(runtime.services.ledger, wait_s=10.0, reserve_s=2.0, limit=10)}


@pytest.mark.parametrize("left_s", [-20.0, -1.0])
def test_a_case_whose_time_is_over_is_not_worked_on_and_is_the_guards(runtime: PoolRuntime, cases: StubCases, left_s: float) -> None:
    rungs, before, work = cases.waiting(Pool.REPORTING, 2), expired(), StubReporting(runtime)
    cases.leave(left_s)

    run_stage(runtime, message_for(Pool.REPORTING, rungs), work)

    assert work.did == []
    assert expired() == before + 2
    rows = cases.rows().values()
    assert {(row.state, row.claimed_by, row.tries, row.is_delayed) for row in rows} == {("awaiting_report", None, 0, True)}
    assert owed_to(runtime) == {rung.case_id: True for rung in rungs}


def test_what_a_pool_takes_as_a_rule_must_be_left(runtime: PoolRuntime, cases: StubCases) -> None:
    for _ in range(3):
        runtime.pace.note(20.0)
    rungs, work = cases.waiting(Pool.REPORTING, 1), StubReporting(runtime)
    cases.leave(12.0)

    run_stage(runtime, message_for(Pool.REPORTING, rungs), work)

    assert work.did == []
    # The guard need not wait for the deadline to come near: nobody tries it again before.
    assert owed_to(runtime) == {rungs[0].case_id: True}


def test_each_case_of_a_doorbell_is_asked_for_its_own_time_and_a_quick_pool_lets_it_be_short(
    runtime: PoolRuntime, cases: StubCases
) -> None:
    rungs, work = cases.waiting(Pool.REPORTING, 3), StubReporting(runtime)
    late = rungs[1].case_id
    run(cases.ledger.relaxed, text("UPDATE cases SET deadline_at = clock_timestamp() - interval '1 s' WHERE id = :id"), id=late)

    run_stage(runtime, message_for(Pool.REPORTING, rungs), work)

    assert set(work.did) == {rung.case_id for rung in rungs} - {late}
    assert cases.said(late) == (0, 0, 0)


def test_in_the_compensation_lane_nobody_waits_and_the_work_is_done(runtime: PoolRuntime, cases: StubCases) -> None:
    rungs, work = cases.waiting(Pool.REPORTING, 1), StubReporting(runtime)
    cases.leave(-1000.0)
    run(cases.ledger.relaxed, text("UPDATE cases SET lane = 'compensation'"))

    run_stage(runtime, message_for(Pool.REPORTING, rungs), work)

    assert cases.states() == {rungs[0].case_id: "completed"}


class Slow(StubReporting):
    """Uses up its time."""

    def do(self, case: Claimed, clock: StageClock) -> Completion:
        raise OutOfTime("it took too long")


def test_who_runs_out_of_time_at_work_is_left_to_the_guard_and_charged_a_try(runtime: PoolRuntime, cases: StubCases) -> None:
    rungs = cases.waiting(Pool.REPORTING, 1)
    cases.leave(20.0)

    run_stage(runtime, message_for(Pool.REPORTING, rungs), Slow(runtime))

    (row,) = cases.rows().values()
    assert (row.state, row.tries, row.strikes) == ("awaiting_report", 1, 0)
    assert LATER_S < (row.due_at - row.published_at).total_seconds() <= 20
    assert owed_to(runtime) == {rungs[0].case_id: True}


def test_who_runs_out_of_time_in_the_compensation_lane_waits_for_its_next_try(runtime: PoolRuntime, cases: StubCases) -> None:
    rungs = cases.waiting(Pool.REPORTING, 1)
    run(cases.ledger.relaxed, text("UPDATE cases SET lane = 'compensation', compensation_attempts = 1"))

    run_stage(runtime, message_for(Pool.REPORTING, rungs), Slow(runtime))

    (row,) = cases.rows().values()
    assert (row.state, row.deferred_because, row.worklist_at) == ("deferred", "deadline-passed", None)
