"""A thousand swaps, at every hop at which one case's data could end as another's: not one is accepted.

Each is injected from outside (a wrapped store, runner or pool, a row that names another's tensor, a slot that holds what was
there before) while the product's own pools do the work on a real ledger and a real tensor store. Beside the swapped cases
run honest ones, which must pass: a check that refuses everything proves nothing.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from pipeline.dicom.decoder import Decoder
from pipeline.dicom.phantom import PhantomStudy, phantom_instance
from pipeline.flow import Pool
from pipeline.inference.registry import ModelRegistry
from pipeline.persistence.ledger.claims import Rung
from pipeline.stages.preprocess import PreprocessTools
from schemas.message import MOST_CASES
from schemas.work import ReceivedInstance
from tests.acceptance.running import eventually
from tests.integration.identity.house import Bytes, House, Known, identity_mismatches
from tests.integration.identity.swaps import (
    INFERRED_KINDS,
    PREPARED_KINDS,
    CrossedPlace,
    CrossedReporting,
    SlippedRegistry,
    foreign_inferred,
    foreign_prepared,
    reuse_slot,
)
from tests.integration.workers.stub_cases import message_for
from workers.former import Former
from workers.intake import IntakeWork
from workers.reporting import ReportingWork
from workers.stage_task import PoolRuntime, PoolWork, run_stage
from workers.wiring import tensor_dir, uploads_url

pytestmark = pytest.mark.services

SHARES = {"received": 160, "row to inference": 160, "reused slot": 160, "batch": 176, "row to reporting": 168, "result": 176}
MODEL_LIMIT_S = 120.0


def test_together_they_are_a_thousand() -> None:
    assert sum(SHARES.values()) == 1000


def require_withheld(house: House, swapped: Sequence[Known], *, claims: int) -> None:
    """Each has failed with its code and without a result, and was not tried again: each pool on its way claimed it once."""
    rows = house.rows(swapped)
    ends = {(row.state, (row.failure or {}).get("code"), row.results, row.claimed_by) for row in rows.values()}
    assert ends == {("failed", "identity-mismatch", 0, None)}
    assert {row.attempt for row in rows.values()} == {claims}
    assert {row.way[-1] for row in rows.values()} == {"failed"}


def run_pool(runtime: PoolRuntime, work: PoolWork[Any], rungs: Sequence[Rung]) -> None:
    """Answer doorbells until all of these were rung for."""
    for first in range(0, len(rungs), MOST_CASES):
        run_stage(runtime, message_for(runtime.pool, rungs[first : first + MOST_CASES]), work)


def run_model(house: House, registry: ModelRegistry, known: Sequence[Known], runtime: PoolRuntime) -> None:
    """Let the model thread work until none of these waits for it."""
    died: list[bool] = []
    former = Former(runtime, registry, on_death=lambda: died.append(True))
    former.start()
    try:
        waiting = {"awaiting_inference", "inferring"}
        assert eventually(
            lambda: died or not waiting & {row.state for row in house.rows(known).values()},
            within_s=MODEL_LIMIT_S,
        )
        assert not died
    finally:
        former.drain()
        former.join(MODEL_LIMIT_S)


def loaded(house: House) -> ModelRegistry:
    assert house.services.settings.models_dir is not None
    registry = ModelRegistry(house.services.settings.models_dir)
    registry.load()
    return registry


def as_dicom(image: Bytes, case_id: UUID) -> bytes:
    return phantom_instance(image, PhantomStudy(name=case_id.hex))


@pytest.mark.parametrize("kind", ["bytes under the key", "crossed reply", "key in the row"])
def test_the_bytes_of_another_case_are_not_prepared(house: House, kind: str) -> None:
    share = SHARES["received"] // 2 if kind == "crossed reply" else SHARES["received"] // 4
    honest = house.new(4, encode=as_dicom)
    swapped = house.new(share)
    others = dict(zip([each.case_id for each in swapped], [*swapped[1:], honest[0]], strict=True))
    uploads = house.services.uploads
    for each in [*swapped, *honest]:
        kept = others.get(each.case_id, each) if kind == "bytes under the key" else each
        uploads.write(each.received.key, kept.data)
    if kind == "crossed reply":
        crossed = {each.received.key: others[each.case_id].received.key for each in swapped}
        uploads = CrossedPlace(uploads_url(house.services.settings), crossed)

    def received(each: Known) -> ReceivedInstance:
        return (others.get(each.case_id, each) if kind == "key in the row" else each).received

    rungs = house.accept([*swapped, *honest], received)
    runtime = replace(house.runtime(Pool.INTAKE), services=replace(house.services, uploads=uploads))
    before = identity_mismatches("fetch")

    with Decoder(child_count=1) as decoder:
        tools = PreprocessTools(decoder, house.services.cards, house.services.tensors, decode_timeout_s=30.0)
        run_pool(runtime, IntakeWork(runtime, tools), rungs)

    require_withheld(house, swapped, claims=1)
    assert identity_mismatches("fetch") == before + share
    assert {row.state for row in house.rows(honest).values()} == {"awaiting_inference"}


def test_a_row_that_names_another_cases_tensor_or_work_is_not_shown_to_the_model(house: House) -> None:
    honest, swapped = house.new(16), house.new(SHARES["row to inference"])
    place = {each.case_id: number for number, each in enumerate(swapped)}

    def tamper(each: Known) -> dict[str, object]:
        if each.case_id not in place:
            return {"prepared": each.prepared}
        number = place[each.case_id]
        other = swapped[number + 1] if number % 2 and number + 1 < len(swapped) else honest[number % len(honest)]
        return {"prepared": foreign_prepared(each, other, PREPARED_KINDS[number % len(PREPARED_KINDS)])}

    house.accept([*honest, *swapped])
    house.stand_in_line(house.prepare([*honest, *swapped], tamper))
    before = identity_mismatches("infer")

    run_model(house, loaded(house), [*honest, *swapped], house.runtime(Pool.INFERENCE))

    require_withheld(house, swapped, claims=2)
    assert identity_mismatches("infer") == before + len(swapped)
    require_own_answers(house, honest)


def require_own_answers(house: House, honest: Sequence[Known]) -> None:
    """The honest have been read, each its own input, and nobody took their tensors away."""
    rows = house.rows(honest)
    assert {row.state for row in rows.values()} == {"awaiting_report"}
    for each in honest:
        assert each.prepared is not None
        assert each.prepared.model_input is not None
        inferred = rows[each.case_id].work["inferred"]
        assert (inferred["model_input_digest"], inferred["probability"]["case_id"]) == (each.prepared.model_input.digest, str(each.case_id))
        house.services.tensors.get(each.prepared.model_input, case_id=each.case_id)


def test_a_slot_that_holds_what_was_there_before_is_not_read(house: House) -> None:
    """given half of the slots hold another case's older tensor, and half the case's own of an older claim"""
    honest, swapped = house.new(16), house.new(SHARES["reused slot"])
    older = house.new(len(swapped))
    house.accept([*honest, *swapped, *older])
    house.prepare(older)
    rungs = house.prepare([*honest, *swapped])
    folder = tensor_dir(house.services.settings)
    for number, (each, before) in enumerate(zip(swapped, older, strict=True)):
        assert each.prepared is not None
        assert each.prepared.model_input is not None
        assert before.prepared is not None
        slot = before.prepared.model_input
        if number % 2:
            slot = house.services.tensors.put(
                before.framed[None, None], case_id=each.case_id, generation=0, expires_at=each.prepared.model_input.expires_at
            )
        assert slot is not None
        reuse_slot(folder, each.prepared.model_input, slot)
    house.stand_in_line(rungs)
    counted = identity_mismatches("infer")

    run_model(house, loaded(house), [*honest, *swapped], house.runtime(Pool.INFERENCE))

    require_withheld(house, swapped, claims=2)
    assert identity_mismatches("infer") == counted + len(swapped)
    require_own_answers(house, honest)


def test_a_batch_whose_rows_change_places_answers_nobody(house: House) -> None:
    known = house.new(SHARES["batch"])
    house.accept(known)
    house.stand_in_line(house.prepare(known))
    registry = SlippedRegistry(loaded(house), house.chance)
    by_row = {each.framed.tobytes(): each for each in known}
    before = identity_mismatches("infer")

    run_model(house, registry, known, house.runtime(Pool.INFERENCE))

    swapped = [by_row[row] for runner in registry.runners.values() for row in runner.slipped]
    assert len(swapped) == len(known)
    require_withheld(house, swapped, claims=2)
    assert identity_mismatches("infer") == before + len(swapped)


def test_an_answer_or_an_image_of_another_case_is_not_reported(house: House) -> None:
    honest, swapped = house.new(8), house.new(SHARES["row to reporting"])
    place = {each.case_id: number for number, each in enumerate(swapped)}

    def tamper(each: Known) -> dict[str, object]:
        if each.case_id not in place:
            return {"inferred": each.inferred}
        number = place[each.case_id]
        return foreign_inferred(each, honest[number % len(honest)], INFERRED_KINDS[number % len(INFERRED_KINDS)])

    known = [*honest, *swapped]
    house.accept(known)
    house.prepare(known)
    rungs = house.infer(known, tamper)
    runtime = house.runtime(Pool.REPORTING)
    before = identity_mismatches("postprocess")

    # The honest last: whoever failed before must have left them what they need.
    run_pool(runtime, ReportingWork(runtime), sorted(rungs, key=lambda rung: rung.case_id not in place))

    require_withheld(house, swapped, claims=3)
    assert identity_mismatches("postprocess") == before + len(swapped)
    assert {(row.state, row.results) for row in house.rows(honest).values()} == {("completed", 1)}


def test_a_result_is_not_written_for_another_case_though_all_attempts_agree(house: House) -> None:
    runtime = house.runtime(Pool.REPORTING)
    work = CrossedReporting(runtime)
    before = identity_mismatches("report")
    known: list[Known] = []

    while len(work.crossed) < SHARES["result"]:
        group = house.new(MOST_CASES)
        house.accept(group)
        if len(known) % (4 * MOST_CASES) == 0:
            house.prepare(group)
            run_pool(runtime, work, house.infer(group))
        else:
            run_pool(runtime, work, house.pass_by(group))
        known += group

    swapped = [each for each in known if each.case_id in work.crossed]
    require_withheld(house, [each for each in swapped if each.inferred], claims=3)
    require_withheld(house, [each for each in swapped if not each.inferred], claims=2)
    assert identity_mismatches("report") == before + len(swapped)
    honest = [each for each in known if each.case_id not in work.crossed]
    assert {(row.state, row.results) for row in house.rows(honest).values()} == {("completed", 1)}


def test_honest_cases_go_all_the_way_through_the_same_checks(house: House) -> None:
    honest = house.new(3, encode=as_dicom)
    for each in honest:
        house.services.uploads.write(each.received.key, each.data)
    rungs = house.accept(honest)
    intake, inference, reporting = (house.runtime(pool) for pool in (Pool.INTAKE, Pool.INFERENCE, Pool.REPORTING))

    with Decoder(child_count=1) as decoder:
        tools = PreprocessTools(decoder, house.services.cards, house.services.tensors, decode_timeout_s=30.0)
        run_pool(intake, IntakeWork(intake, tools), rungs)
    run_model(house, loaded(house), honest, inference)
    run_pool(reporting, ReportingWork(reporting), rungs)

    assert {(row.state, row.results) for row in house.rows(honest).values()} == {("completed", 1)}
