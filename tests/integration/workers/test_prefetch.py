"""What is read of the line's head while a batch runs: used where the case is claimed then, and otherwise without effect."""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import numpy as np
import pytest
from sqlalchemy import text

from pipeline.deadline import utc_now
from pipeline.flow import Pool
from pipeline.inference.card import SHIPPED_MODELS
from pipeline.inference.registry import ModelRegistry
from pipeline.persistence.ledger.engine import run
from pipeline.persistence.ledger.prepared import model_inputs
from pipeline.tensors.store import AnyArray, TensorStore
from schemas.tensor import TensorHandle
from tests.integration.workers.model_line import in_line, states_after
from tests.integration.workers.prepared_cases import LIFETIME
from tests.integration.workers.stub_cases import StubCases
from workers.former import Former
from workers.prefetch import Prefetch
from workers.stage_task import PoolRuntime

pytestmark = pytest.mark.services

MODEL = "breast-lesion:1"
FIRST, NEXT = 16, 4
"""Cases of a full batch, and of the one after it."""
REPLACE_INPUT = text("UPDATE cases SET work = jsonb_set(work, '{prepared,model_input}', CAST(:handle AS jsonb)) WHERE id = :id")


class CountingStore:
    """A tensor store that remembers who read what."""

    def __init__(self, store: TensorStore) -> None:
        self._store = store
        self.put, self.free, self.reclaim, self.used_bytes = store.put, store.free, store.reclaim, store.used_bytes
        self.reads: Counter[tuple[UUID, str]] = Counter()

    def get(self, handle: TensorHandle, *, case_id: UUID) -> AnyArray:
        self.reads[case_id, threading.current_thread().name] += 1
        return self._store.get(handle, case_id=case_id)


@pytest.fixture(scope="module")
def registry() -> ModelRegistry:
    registry = ModelRegistry(SHIPPED_MODELS, device="cpu", threads=1)
    registry.load()
    return registry


@pytest.fixture
def store(runtime: PoolRuntime) -> CountingStore:
    return CountingStore(runtime.services.tensors)


@pytest.fixture
def former(runtime: PoolRuntime, registry: ModelRegistry, store: CountingStore) -> Former:
    """One that reads ahead although its device is a CPU."""
    services = replace(runtime.services, tensors=store)
    former = Former(replace(runtime, pool=Pool.INFERENCE, services=services), registry, on_death=lambda: None)
    former._prefetch = Prefetch(services, always=True)
    return former


@pytest.fixture
def after_the_first_batch(runtime: PoolRuntime, former: Former) -> Callable[[], list[UUID]]:
    """Run a full batch, and give the cases behind it, which were read meanwhile."""

    def run_it() -> list[UUID]:
        held = in_line(runtime, MODEL, FIRST + NEXT)
        former._turn()
        former.settle()
        former._prefetch._readings[MODEL]._thread.join(60)
        return held[FIRST:]

    return run_it


Behind = Callable[[], list[UUID]]


def readers(store: CountingStore, cases: list[UUID]) -> dict[str, int]:
    """How many of these cases' tensors were read by which thread."""
    found: Counter[str] = Counter()
    for (case_id, thread), count in store.reads.items():
        if case_id in cases:
            found[thread] += count
    return dict(found)


def test_what_was_read_while_a_batch_ran_is_not_read_again(
    former: Former, cases: StubCases, store: CountingStore, after_the_first_batch: Behind
) -> None:
    behind = after_the_first_batch()
    assert readers(store, behind) == {"read-ahead": NEXT}

    wanted = dict.fromkeys(cases.states(), "awaiting_report")
    assert states_after(former, cases, wanted) == wanted
    assert readers(store, behind) == {"read-ahead": NEXT}


def test_reading_makes_nobody_the_owner(cases: StubCases, after_the_first_batch: Behind) -> None:
    behind = after_the_first_batch()

    rows = cases.rows()
    assert {(rows[each].state, rows[each].attempt, rows[each].claimed_by) for each in behind} == {("awaiting_inference", 1, None)}


def test_a_case_that_was_read_and_left_the_line_is_not_run(
    runtime: PoolRuntime, former: Former, cases: StubCases, after_the_first_batch: Behind
) -> None:
    gone, *_ = after_the_first_batch()
    runtime.services.line(MODEL).leave([gone])

    wanted = dict.fromkeys(cases.states(), "awaiting_report") | {gone: "awaiting_inference"}
    assert states_after(former, cases, wanted) == wanted
    assert cases.rows()[gone].attempt == 1


def test_a_case_that_was_prepared_again_is_not_answered_from_the_old_copy(
    runtime: PoolRuntime, former: Former, cases: StubCases, store: CountingStore, after_the_first_batch: Behind
) -> None:
    again, *behind = after_the_first_batch()
    (old,) = model_inputs(cases.ledger, [again]).values()
    new = store.put(np.full(old.shape, 9, np.uint8), case_id=again, generation=1, expires_at=utc_now() + LIFETIME)
    run(cases.ledger.relaxed, REPLACE_INPUT, handle=new.model_dump_json(), id=again)

    wanted = dict.fromkeys(cases.states(), "awaiting_report")
    assert states_after(former, cases, wanted) == wanted
    assert cases.rows()[again].work["inferred"]["model_input_digest"] == new.digest != old.digest
    assert set(readers(store, [again])) == {"read-ahead", threading.current_thread().name}
    assert set(readers(store, behind)) == {"read-ahead"}


def test_on_a_cpu_nothing_is_read_ahead(runtime: PoolRuntime, registry: ModelRegistry, cases: StubCases, store: CountingStore) -> None:
    services = replace(runtime.services, tensors=store)
    former = Former(replace(runtime, pool=Pool.INFERENCE, services=services), registry, on_death=lambda: None)
    held = in_line(runtime, MODEL, FIRST + NEXT)

    wanted = dict.fromkeys(held, "awaiting_report")
    assert states_after(former, cases, wanted) == wanted
    assert readers(store, held) == {threading.current_thread().name: FIRST + NEXT}
