"""One bad member of a batch: the others have their own answers, and few passes are spent on finding it."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from pipeline.errors import ModelFailed, RejectedInput
from pipeline.inference.failures import BadOutput, TooLargeForDevice
from pipeline.inference.runner import ModelRunner
from pipeline.inference.seeded import write_seeded_model
from pipeline.stages.infer import BatchMember, BatchResult, Firing, Pass, infer
from pipeline.tensors.memory import MemoryStore
from schemas.model_card import Precision
from schemas.work import CaseInput, CaseWork, PreparedCase

NOW = datetime(2026, 1, 2, tzinfo=UTC)
SIDE_PX = 32
MEMBERS = 16


class Echo(nn.Module):
    """Answers with what it was shown, so that an answer tells whose it is; a rule of the test may spoil a pass."""

    def __init__(self, spoil: Callable[[Sequence[int], Tensor], None]) -> None:
        super().__init__()
        self._spoil = spoil

    def forward(self, display: Tensor) -> tuple[Tensor, Tensor]:
        outline = torch.logit(display)
        self._spoil([round(float(image.max()) * 255) for image in display], outline)
        return outline, torch.zeros(len(display), 2)


class Bench:
    """A small model folder; runs batches of members whose pixels all hold the member's number."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._card = folder, write_seeded_model(folder, seed=1, side_px=SIDE_PX, widths=(4, 4, 4, 4))

    def infer(
        self, images_of: Sequence[int], spoil: Callable[[Sequence[int], Tensor], None], *, precision: Precision = "float32"
    ) -> BatchResult:
        """Run a batch of members with so many images each; each answer that comes is checked to be the member's own."""
        runner = ModelRunner(self._card, Echo(spoil), folder=self._folder, device=torch.device("cpu"), precision=precision)
        tensors = MemoryStore(capacity_bytes=1 << 24)
        members = []
        for number, image_count in enumerate(images_of, start=1):
            values = np.full((image_count, 1, SIDE_PX, SIDE_PX), number, np.uint8)
            handle = tensors.put(values, case_id=UUID(int=number), generation=1, expires_at=NOW + timedelta(minutes=1))
            prepared = PreparedCase(model=self._card.reference, case_id=UUID(int=number), instances=(), images=(), model_input=handle)
            members.append(BatchMember(UUID(int=number), 1, CaseInput(instances=()), CaseWork(prepared=prepared)))
        result = infer(members, Firing("b", "full", "cpu", NOW), runner=runner, tensors=tensors)
        for case_id, inferred in result.inferred.items():
            probability = tensors.get(inferred.probability, case_id=case_id)
            np.testing.assert_array_equal(probability, np.full((images_of[case_id.int - 1], SIDE_PX, SIDE_PX), case_id.int))
        assert not set(result.inferred) & set(result.failed)
        assert {case_id.int for case_id in (*result.inferred, *result.failed)} == set(range(1, len(images_of) + 1))
        return result


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("models") / "small")


def raises_for(*culprits: int) -> Callable[[Sequence[int], Tensor], None]:
    def spoil(numbers: Sequence[int], _: Tensor) -> None:
        if set(numbers) & set(culprits):
            raise RuntimeError("a kernel that dislikes this image")

    return spoil


def failed(result: BatchResult) -> set[int]:
    return {case_id.int for case_id in result.failed}


@pytest.mark.parametrize("culprit", range(1, MEMBERS + 1))
def test_of_sixteen_with_one_that_breaks_the_pass_fifteen_have_their_answer_after_five_more_passes(bench: Bench, culprit: int) -> None:
    result = bench.infer([1] * MEMBERS, raises_for(culprit))

    assert failed(result) == {culprit}
    assert isinstance(result.failed[UUID(int=culprit)], ModelFailed)
    assert result.forward_passes <= 1 + 5


@settings(deadline=None, max_examples=40)
@given(images_of=st.lists(st.integers(1, 3), min_size=1, max_size=9), data=st.data())
def test_several_culprits_fail_and_nobody_else(bench: Bench, images_of: list[int], data: st.DataObject) -> None:
    culprits = data.draw(st.sets(st.integers(1, len(images_of))))

    assert failed(bench.infer(images_of, raises_for(*culprits))) == culprits


@settings(deadline=None, max_examples=40)
@given(images_of=st.lists(st.integers(1, 3), min_size=1, max_size=9), data=st.data())
def test_an_answer_that_is_no_number_costs_its_owner_alone_and_one_more_pass(
    bench: Bench, images_of: list[int], data: st.DataObject
) -> None:
    culprits = data.draw(st.sets(st.integers(1, len(images_of)), min_size=1))

    def spoil(numbers: Sequence[int], outline: Tensor) -> None:
        for row, number in enumerate(numbers):
            if number in culprits:
                outline[row, 0, 3, 4] = float("nan")

    result = bench.infer(images_of, spoil)

    assert failed(result) == culprits
    assert all(isinstance(error, BadOutput) for error in result.failed.values())
    assert result.forward_passes == (1 if len(culprits) == len(images_of) else 2)


@pytest.mark.parametrize("room", [1, 3, 5, 16])
def test_a_device_too_small_for_the_batch_answers_all_of_it_in_parts(bench: Bench, room: int) -> None:
    def spoil(numbers: Sequence[int], _: Tensor) -> None:
        if len(numbers) > room:
            raise torch.OutOfMemoryError("no room")

    assert failed(bench.infer([1] * MEMBERS, spoil)) == set()


def holds(room: int) -> Callable[[Sequence[int], Tensor], None]:
    """A device that holds so many images."""

    def spoil(numbers: Sequence[int], _: Tensor) -> None:
        if len(numbers) > room:
            raise torch.OutOfMemoryError("no room")

    return spoil


@pytest.mark.parametrize("room", [1, 2, 4])
def test_a_case_of_which_the_device_holds_some_images_at_a_time_is_answered_whole(bench: Bench, room: int) -> None:
    result = bench.infer([1, 7, 2], holds(room))

    assert failed(result) == set()
    assert result.inferred[UUID(int=2)].batch_position == 0
    assert result.inferred[UUID(int=2)].batch_size == 7


@pytest.mark.parametrize("position", [1, 5, 8])
def test_a_case_whose_single_image_the_device_does_not_hold_is_set_aside_by_name_and_not_tried_again(bench: Bench, position: int) -> None:
    def spoil(numbers: Sequence[int], _: Tensor) -> None:
        if position in numbers:
            raise torch.OutOfMemoryError("no room")

    result = bench.infer([1] * 8, spoil)

    assert failed(result) == {position}
    assert isinstance(result.failed[UUID(int=position)], TooLargeForDevice)
    assert isinstance(result.failed[UUID(int=position)], RejectedInput)
    assert result.passes.count(Pass(1, "out of memory")) == 1


def test_what_the_memory_held_and_what_it_did_not_is_recorded_in_order(bench: Bench) -> None:
    result = bench.infer([1] * 9, holds(8))

    assert result.passes == [Pass(9, "out of memory"), Pass(4, "done"), Pass(5, "done")]


def test_a_library_that_says_twice_that_it_found_no_memory_is_believed_once(bench: Bench) -> None:
    def spoil(numbers: Sequence[int], _: Tensor) -> None:
        if 3 in numbers:
            raise RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED")

    result = bench.infer([1] * 8, spoil)

    assert failed(result) == {3}
    assert isinstance(result.failed[UUID(int=3)], ModelFailed)
    assert [each.outcome for each in result.passes].count("out of memory") == 1


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_what_a_repetition_needs_is_kept_with_each_result(bench: Bench, precision: Precision) -> None:
    inferred = bench.infer([2, 1, 3], lambda *_: None, precision=precision).inferred

    kept = [(each.batch_size, each.batch_position, each.precision, each.device) for each in inferred.values()]
    assert kept == [(6, 0, precision, "cpu"), (6, 2, precision, "cpu"), (6, 3, precision, "cpu")]
    assert {(each.model, each.batch_id, each.fired_because) for each in inferred.values()} == {("seeded-unet:1.32", "b", "full")}


def test_a_sound_batch_takes_one_pass_and_an_empty_one_none(bench: Bench) -> None:
    assert bench.infer([1, 1], lambda *_: None).forward_passes == 1
    assert bench.infer([], lambda *_: None).forward_passes == 0
