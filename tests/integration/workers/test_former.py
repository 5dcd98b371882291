"""Whom the model thread takes aboard, with the shipped model, a real line and a real ledger."""

from dataclasses import replace
from uuid import UUID

import numpy as np
import pytest
from sqlalchemy import text

from pipeline.flow import Pool
from pipeline.inference.card import SHIPPED_MODELS
from pipeline.inference.registry import ModelRegistry
from pipeline.persistence.ledger.engine import run
from tests.integration.workers.prepared_cases import PreparedCases
from tests.integration.workers.stub_cases import StubCases
from workers.doorbell import place_in_line
from workers.former import Former
from workers.stage_task import PoolRuntime

pytestmark = pytest.mark.services

MOST_TURNS = 200


@pytest.fixture(scope="module")
def registry() -> ModelRegistry:
    registry = ModelRegistry(SHIPPED_MODELS, device="cpu", threads=1)
    registry.load()
    return registry


def in_line(runtime: PoolRuntime, registry: ModelRegistry, count: int) -> list[UUID]:
    """Prepared cases that wait for the model, in the order in which they stand."""
    services, model = runtime.services, registry.served[0]
    side_px = services.cards[model][0].input.side_px
    images = [np.zeros((1, side_px, side_px), np.uint8)] * count
    rungs = PreparedCases(services.ledger, services.tensors, model).bring(images)
    now = services.clock.now()
    places = [place_in_line(rung, accepted_at=now, image_count=1, now_s=now.timestamp()) for rung in rungs]
    services.line(model).join(replace(place, virtual_deadline=1.0 + number) for number, place in enumerate(places))
    return [rung.case_id for rung in rungs]


def states_after(former: Former, cases: StubCases, wanted: dict[UUID, str]) -> dict[UUID, str]:
    """Let the model thread turn until the cases stand where they should."""
    for _ in range(MOST_TURNS):
        former._turn()
        if cases.states() == wanted:
            break
    return cases.states()


def test_a_batch_runs_without_those_whose_time_is_over(runtime: PoolRuntime, cases: StubCases, registry: ModelRegistry) -> None:
    first, late, last = in_line(runtime, registry, 3)
    run(cases.ledger.relaxed, text("UPDATE cases SET deadline_at = clock_timestamp() - interval '1 s' WHERE id = :id"), id=late)
    former = Former(replace(runtime, pool=Pool.INFERENCE), registry, on_death=lambda: None)
    wanted = {first: "awaiting_report", late: "awaiting_inference", last: "awaiting_report"}

    assert states_after(former, cases, wanted) == wanted
    row = cases.rows()[late]
    assert (row.tries, row.is_delayed, row.claimed_by) == (0, True, None)


def test_a_suspect_runs_by_itself_and_its_company_follows(runtime: PoolRuntime, cases: StubCases, registry: ModelRegistry) -> None:
    suspect, *company = in_line(runtime, registry, 3)
    run(cases.ledger.relaxed, text("UPDATE cases SET strikes = 1 WHERE id = :id"), id=suspect)
    former = Former(replace(runtime, pool=Pool.INFERENCE), registry, on_death=lambda: None)
    wanted = dict.fromkeys([suspect, *company], "awaiting_report")

    assert states_after(former, cases, wanted) == wanted
    batches = {case_id: row.work["inferred"]["batch_size"] for case_id, row in cases.rows().items()}
    assert batches[suspect] == 1
    # They were claimed with it, given back, and claimed again.
    assert {cases.rows()[each].attempt for each in company} == {3}
    assert cases.rows()[suspect].attempt == 2
