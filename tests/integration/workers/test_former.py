"""Whom the model thread takes aboard, with the shipped model, a real line and a real ledger."""

from dataclasses import replace
from uuid import UUID

import pytest
from sqlalchemy import text

from pipeline.flow import Pool
from pipeline.inference.card import SHIPPED_MODELS
from pipeline.inference.registry import ModelRegistry
from pipeline.persistence.ledger.engine import run
from tests.integration.workers.model_line import in_line, states_after
from tests.integration.workers.stub_cases import StubCases
from workers.former import Former
from workers.stage_task import PoolRuntime

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def registry() -> ModelRegistry:
    registry = ModelRegistry(SHIPPED_MODELS, device="cpu", threads=1)
    registry.load()
    return registry


def test_a_batch_runs_without_those_whose_time_is_over(runtime: PoolRuntime, cases: StubCases, registry: ModelRegistry) -> None:
    first, late, last = in_line(runtime, registry.served[0], 3)
    run(cases.ledger.relaxed, text("UPDATE cases SET deadline_at = clock_timestamp() - interval '1 s' WHERE id = :id"), id=late)
    former = Former(replace(runtime, pool=Pool.INFERENCE), registry, on_death=lambda: None)
    wanted = {first: "awaiting_report", late: "awaiting_inference", last: "awaiting_report"}

    assert states_after(former, cases, wanted) == wanted
    row = cases.rows()[late]
    assert (row.tries, row.is_delayed, row.claimed_by) == (0, True, None)


def test_a_suspect_runs_by_itself_and_its_company_follows(runtime: PoolRuntime, cases: StubCases, registry: ModelRegistry) -> None:
    suspect, *company = in_line(runtime, registry.served[0], 3)
    run(cases.ledger.relaxed, text("UPDATE cases SET strikes = 1 WHERE id = :id"), id=suspect)
    former = Former(replace(runtime, pool=Pool.INFERENCE), registry, on_death=lambda: None)
    wanted = dict.fromkeys([suspect, *company], "awaiting_report")

    assert states_after(former, cases, wanted) == wanted
    batches = {case_id: row.work["inferred"]["batch_size"] for case_id, row in cases.rows().items()}
    assert batches[suspect] == 1
    # They were claimed with it, given back, and claimed again.
    assert {cases.rows()[each].attempt for each in company} == {3}
    assert cases.rows()[suspect].attempt == 2


def test_a_suspect_that_others_overtake_is_claimed_and_sent_back_once_however_many_batches_fire_before_its_turn(
    runtime: PoolRuntime, cases: StubCases, registry: ModelRegistry
) -> None:
    """given six batches that it would be in, then its attempts are its preparation, being met, and its own run"""
    model = registry.served[0]
    (suspect,) = in_line(runtime, model, 1, place=1000.0)
    run(cases.ledger.relaxed, text("UPDATE cases SET strikes = 1 WHERE id = :id"), id=suspect)
    former = Former(replace(runtime, pool=Pool.INFERENCE), registry, on_death=lambda: None)
    done: list[UUID] = []
    for _ in range(6):
        done += in_line(runtime, model, 2)
        wanted = dict.fromkeys(done, "awaiting_report") | {suspect: "awaiting_inference"}
        former._turn()
        assert cases.states() == wanted

    assert states_after(former, cases, wanted | {suspect: "awaiting_report"})[suspect] == "awaiting_report"
    assert cases.rows()[suspect].attempt == 3
    assert cases.rows()[suspect].work["inferred"]["batch_size"] == 1
