"""Whom the model thread takes aboard, with the shipped model, a real line and a real ledger."""

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest
from sqlalchemy import text

from pipeline.flow import Pool
from pipeline.inference.card import SHIPPED_MODELS
from pipeline.inference.registry import ModelRegistry
from pipeline.persistence.ledger.engine import run
from pipeline.persistence.waiting_line import Waiting
from tests.integration.workers.model_line import MOST_TURNS, in_line, states_after
from tests.integration.workers.stub_cases import StubCases
from workers.former import Former
from workers.served import Chosen
from workers.stage_task import PoolRuntime

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def registry() -> ModelRegistry:
    registry = ModelRegistry(SHIPPED_MODELS, device="cpu", threads=1)
    registry.load()
    return registry


def former_of(runtime: PoolRuntime, registry: ModelRegistry, *, name: str = "inference@a-1") -> Former:
    """One device's process."""
    services = replace(runtime.services, worker=name)
    return Former(replace(runtime, pool=Pool.INFERENCE, services=services), registry, on_death=lambda: None)


def test_a_batch_runs_without_those_whose_time_is_over(runtime: PoolRuntime, cases: StubCases, registry: ModelRegistry) -> None:
    first, late, last = in_line(runtime, registry.served[0], 3)
    run(cases.ledger.relaxed, text("UPDATE cases SET deadline_at = clock_timestamp() - interval '1 s' WHERE id = :id"), id=late)
    former = former_of(runtime, registry)
    wanted = {first: "awaiting_report", late: "awaiting_inference", last: "awaiting_report"}

    assert states_after(former, cases, wanted) == wanted
    row = cases.rows()[late]
    assert (row.tries, row.is_delayed, row.claimed_by) == (0, True, None)


def test_a_suspect_runs_by_itself_and_its_company_follows(runtime: PoolRuntime, cases: StubCases, registry: ModelRegistry) -> None:
    suspect, *company = in_line(runtime, registry.served[0], 3)
    run(cases.ledger.relaxed, text("UPDATE cases SET strikes = 1 WHERE id = :id"), id=suspect)
    former = former_of(runtime, registry)
    wanted = dict.fromkeys([suspect, *company], "awaiting_report")

    assert states_after(former, cases, wanted) == wanted
    batches = {case_id: row.work["inferred"]["batch_size"] for case_id, row in cases.rows().items()}
    assert batches[suspect] == 1
    # They were claimed with it, given back, and claimed again.
    assert {cases.rows()[each].attempt for each in company} == {3}
    assert cases.rows()[suspect].attempt == 2


def test_of_two_idle_formers_the_second_leaves_the_line_to_the_first(
    runtime: PoolRuntime, cases: StubCases, registry: ModelRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = former_of(runtime, registry), former_of(runtime, registry, name="inference@b-2")
    early = in_line(runtime, registry.served[0], 2)
    acts = first._act_on
    late: list[UUID] = []
    pauses_s: list[float] = []

    def while_it_decides(chosen: Chosen) -> None:
        """Another case comes, and the other former looks, between the first one's look and its firing."""
        late.extend(in_line(runtime, registry.served[0], 1))
        pauses_s.append(second._turn())
        second.settle()
        acts(chosen)

    monkeypatch.setattr(first, "_act_on", while_it_decides)
    turns_until(first, lambda: bool(late))
    rows = cases.rows()

    # It would have fired the newcomer by itself, while the others are about to run.
    assert 0 < pauses_s[0] <= 1.5
    assert {rows[each].state for each in early} == {"awaiting_report"}
    assert {rows[each].state for each in late} == {"awaiting_inference"}
    assert turns_until(second, lambda: cases.states()[late[0]] == "awaiting_report")


def test_a_drained_former_leaves_the_turn_to_another_at_once(runtime: PoolRuntime, cases: StubCases, registry: ModelRegistry) -> None:
    first, second = former_of(runtime, registry), former_of(runtime, registry, name="inference@b-2")
    (case_id,) = in_line(runtime, registry.served[0], 1)
    line = runtime.services.line(registry.served[0])
    line.look("inference@a-1", limit=10, now=0.0)

    first.drain()
    first._work()

    assert turns_until(second, lambda: cases.states()[case_id] == "awaiting_report", most=1)


def test_who_is_late_by_the_line_is_let_go_before_the_batch_runs(runtime: PoolRuntime, cases: StubCases, registry: ModelRegistry) -> None:
    late = in_line(runtime, registry.served[0], 1, change=lambda place: replace(place, deadline=place.ready_at - 1))
    others = in_line(runtime, registry.served[0], 2)
    wanted = {late[0]: "awaiting_inference"} | dict.fromkeys(others, "awaiting_report")

    assert states_after(former_of(runtime, registry), cases, wanted) == wanted
    rows = cases.rows()
    assert (rows[late[0]].tries, rows[late[0]].is_delayed, rows[late[0]].claimed_by) == (0, True, None)
    assert {rows[each].work["inferred"]["batch_size"] for each in others} == {2}


def test_a_line_of_late_cases_is_let_go_and_nothing_runs(runtime: PoolRuntime, cases: StubCases, registry: ModelRegistry) -> None:
    late = in_line(runtime, registry.served[0], 3, change=lambda place: replace(place, deadline=place.ready_at - 1))
    former = former_of(runtime, registry)

    assert turns_until(former, lambda: all(row.is_delayed for row in cases.rows().values()), most=2)
    assert set(cases.states()) == set(late)
    assert runtime.services.line(registry.served[0]).length() == 0


def test_a_put_off_case_rides_along(runtime: PoolRuntime, cases: StubCases, registry: ModelRegistry) -> None:
    def as_put_off(place: Waiting) -> Waiting:
        return replace(place, lane="compensation", virtual_deadline=1e12, deadline=1.0)

    (put_off,) = in_line(runtime, registry.served[0], 1, change=as_put_off)
    cases.to_compensation()
    others = in_line(runtime, registry.served[0], 8)
    former = former_of(runtime, registry)
    # On this device another image costs nothing, so that spare slots are free.
    former.lines[0].latency.beta_s = 0.0

    assert turns_until(former, lambda: cases.states()[put_off] == "awaiting_report", most=1)
    batches = {case_id: row.work["inferred"]["batch_id"] for case_id, row in cases.rows().items()}
    assert set(batches) == {put_off, *others}
    assert len(set(batches.values())) == 1


def turns_until(former: Former, is_so: Callable[[], bool], *, most: int = MOST_TURNS) -> bool:
    """Let the model thread turn until something is so; say whether it is."""
    for _ in range(most):
        former._turn()
        former.settle()
        if is_so():
            return True
    return False


def test_a_suspect_that_others_overtake_is_claimed_and_sent_back_once_however_many_batches_fire_before_its_turn(
    runtime: PoolRuntime, cases: StubCases, registry: ModelRegistry
) -> None:
    """given six batches that it would be in, then its attempts are its preparation, being met, and its own run"""
    model = registry.served[0]
    (suspect,) = in_line(runtime, model, 1, place=1000.0)
    run(cases.ledger.relaxed, text("UPDATE cases SET strikes = 1 WHERE id = :id"), id=suspect)
    former = former_of(runtime, registry)
    done: list[UUID] = []
    for _ in range(6):
        done += in_line(runtime, model, 2)
        wanted = dict.fromkeys(done, "awaiting_report") | {suspect: "awaiting_inference"}
        assert states_after(former, cases, wanted) == wanted

    assert states_after(former, cases, wanted | {suspect: "awaiting_report"})[suspect] == "awaiting_report"
    assert cases.rows()[suspect].attempt == 3
    assert cases.rows()[suspect].work["inferred"]["batch_size"] == 1
