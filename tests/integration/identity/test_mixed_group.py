"""Cases that become ready together go to two queues in two commits: whatever happens between them, nobody's tensors are taken away."""

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from sqlalchemy import text

from pipeline.errors import LedgerUnavailable, TensorMissing
from pipeline.flow import Pool
from pipeline.persistence.ledger.claims import Claimed, HandOn, Rung, claim_cases, hand_on
from pipeline.persistence.ledger.engine import run
from pipeline.tensors.store import TensorStore
from schemas.tensor import TensorHandle
from schemas.work import CaseWork, PreparedCase
from tests.integration.identity.house import House
from tests.integration.workers.stub_cases import message_for
from workers import intake
from workers.intake import IntakeWork, Prepared
from workers.stage_task import PoolRuntime, StageClock, run_stage

pytestmark = pytest.mark.services

Spoil = Callable[[Sequence[HandOn], int, Callable[[], list[Rung]]], list[Rung]]
"""What is handed on, for the how manieth time, and how."""


class EveryOther(IntakeWork):
    """Prepares cases without reading them: every other one has something for the model."""

    def __init__(self, runtime: PoolRuntime, house: House) -> None:
        self._runtime, self._house = runtime, house
        self.parked: dict[UUID, list[TensorHandle]] = {}

    def do(self, case: Claimed, clock: StageClock) -> Prepared:
        handles = self.parked.setdefault(case.case_id, [])
        is_read = sorted(self.parked).index(case.case_id) % 2 == 0
        if is_read:
            handles.append(self._house.put(np.ones((1, 1, 32, 32), dtype=np.uint8), case))
        prepared = PreparedCase(
            model=self._house.card.reference,
            case_id=case.case_id,
            instances=(),
            images=(),
            model_input=handles[-1] if is_read else None,
        )
        return Prepared(case, prepared, clock.finish())


def is_there(tensors: TensorStore, handle: TensorHandle) -> bool:
    try:
        tensors.get(handle, case_id=handle.case_id)
    except TensorMissing:
        return False
    return True


def second_is_refused(error: Exception) -> Spoil:
    def spoil(_done: Sequence[HandOn], call: int, really: Callable[[], list[Rung]]) -> list[Rung]:
        if call == 2:
            raise error
        return really()

    return spoil


def reply_is_lost(at_call: int, error: Exception) -> Spoil:
    def spoil(_done: Sequence[HandOn], call: int, really: Callable[[], list[Rung]]) -> list[Rung]:
        rungs = really()
        if call == at_call:
            raise error
        return rungs

    return spoil


@pytest.mark.parametrize(
    "spoil",
    [
        second_is_refused(LedgerUnavailable()),
        second_is_refused(ValueError("a mistake of ours")),
        reply_is_lost(1, LedgerUnavailable()),
        reply_is_lost(1, ValueError("a mistake of ours")),
        reply_is_lost(2, LedgerUnavailable()),
        reply_is_lost(2, ValueError("a mistake of ours")),
    ],
    ids=["second refused", "second spoilt", "first reply lost", "first spoilt after", "second reply lost", "second spoilt after"],
)
def test_who_waits_validly_keeps_its_tensors_whatever_befalls_the_other_commit(
    house: House, monkeypatch: pytest.MonkeyPatch, spoil: Spoil
) -> None:
    rungs = house.accept(house.new(6))
    runtime = house.runtime(Pool.INTAKE)
    work, calls = EveryOther(runtime, house), 0

    def counted(ledger: Any, done: Sequence[HandOn], **where: Any) -> list[Rung]:
        nonlocal calls
        calls += 1
        return spoil(done, calls, lambda: hand_on(ledger, done, **where))

    monkeypatch.setattr(intake, "hand_on", counted)
    run_stage(runtime, message_for(Pool.INTAKE, rungs), work)
    monkeypatch.undo()
    # Those that were put back are done again, as the sweeper would have it.
    ids = [rung.case_id for rung in rungs]
    run(house.services.ledger.relaxed, text("UPDATE cases SET due_at = published_at WHERE id = ANY(:ids)"), ids=ids)
    run_stage(runtime, message_for(Pool.INTAKE, rungs), work)

    rows = run(house.services.ledger.relaxed, text("SELECT id, state, work FROM cases WHERE id = ANY(:ids)"), ids=ids)
    assert sorted(row.state for row in rows) == ["awaiting_inference"] * 3 + ["awaiting_report"] * 3
    for row in rows:
        prepared = CaseWork.model_validate(row.work).prepared
        assert prepared is not None
        if prepared.model_input:
            assert is_there(house.services.tensors, prepared.model_input)


def test_what_a_lost_claim_parked_is_freed_and_what_the_winner_parked_is_not(house: House) -> None:
    rungs = house.accept(house.new(4))
    runtime, ledger = house.runtime(Pool.INTAKE), house.services.ledger
    ids = [rung.case_id for rung in rungs]
    winner: dict[UUID, TensorHandle] = {}

    class Overtaken(EveryOther):
        def write(self, done: Sequence[Prepared]) -> Any:
            run(ledger.relaxed, text("UPDATE cases SET lease_until = now() - interval '1 s' WHERE id = ANY(:ids)"), ids=ids)
            for case in claim_cases(ledger, ids, pool=Pool.INTAKE, worker="winner", seen_no=0):
                winner[case.case_id] = house.put(np.zeros((1, 1, 32, 32), dtype=np.uint8), case)
            return super().write(done)

    work = Overtaken(runtime, house)
    run_stage(runtime, message_for(Pool.INTAKE, rungs), work)

    parked = [handle for handles in work.parked.values() for handle in handles]
    assert len(parked) == 2
    assert not any(is_there(house.services.tensors, handle) for handle in parked)
    assert all(is_there(house.services.tensors, handle) for handle in winner.values())
