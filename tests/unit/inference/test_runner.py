import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pipeline.errors import ModelFailed, Unavailable
from pipeline.inference.device import set_threads
from pipeline.inference.failures import BadOutput, OutOfDeviceMemory, UnfitBatch, sounds_out_of_memory
from pipeline.inference.runner import ModelRunner, sizes_up_to
from schemas.model_card import ModelCard

BATCH = np.random.default_rng(5).integers(1, 255, (3, 1, 32, 32), dtype=np.uint8)

Answer = tuple[Tensor, Tensor]


class Scripted(nn.Module):
    """A network that answers by a rule of the test."""

    def __init__(self, rule: Callable[[Tensor], Answer]) -> None:
        super().__init__()
        self._rule = rule

    def forward(self, display: Tensor) -> Answer:
        return self._rule(display)


def echo(display: Tensor) -> Answer:
    """Logits whose probability is the display value; scores that count in quarters."""
    return torch.logit(display), torch.logit(torch.tensor([[0.25, 0.75]])).repeat(len(display), 1)


@pytest.fixture
def scripted(small: tuple[Path, ModelCard]) -> Callable[[Callable[[Tensor], Answer]], ModelRunner]:
    folder, card = small
    return lambda rule: ModelRunner(card, Scripted(rule), folder=folder, device=torch.device("cpu"))


Scripts = Callable[[Callable[[Tensor], Answer]], ModelRunner]


def test_bytes_become_display_values_and_probabilities_become_bytes(scripted: Scripts) -> None:
    output = scripted(echo).run(BATCH)
    np.testing.assert_array_equal(output.probability, BATCH[:, 0])
    assert output.probability.dtype == np.uint8


def test_scores_are_probabilities_in_the_networks_order(scripted: Scripts) -> None:
    output = scripted(echo).run(BATCH)
    np.testing.assert_allclose(output.scores, [[0.25, 0.75]] * 3, atol=1e-6)
    assert output.scores.dtype == np.float32


def test_a_certain_network_gives_the_ends_of_the_range(scripted: Scripts) -> None:
    output = scripted(lambda display: ((display - 0.5).sign() * 1e9, torch.full((len(display), 2), -1e9))).run(BATCH)
    np.testing.assert_array_equal(output.probability, np.where(BATCH[:, 0] > 127, 255, 0))
    np.testing.assert_array_equal(output.scores, np.zeros((3, 2)))


def test_a_read_only_batch_is_read(scripted: Scripts) -> None:
    batch = BATCH.copy()
    batch.flags.writeable = False
    np.testing.assert_array_equal(scripted(echo).run(batch).probability, BATCH[:, 0])


def test_bytes_are_widened_as_numpy_widens_them(scripted: Scripts, small: tuple[Path, ModelCard]) -> None:
    shown: list[Tensor] = []

    def noting(display: Tensor) -> Answer:
        shown.append(display.clone())
        return echo(display)

    scripted(noting).run(BATCH)
    np.testing.assert_array_equal(shown[0].numpy(), BATCH.astype(np.float32) * np.float32(small[1].input.scale))


def test_parts_are_answered_as_the_batch_that_they_make(scripted: Scripts) -> None:
    output = scripted(echo).run_parts([BATCH[1:], BATCH[:1], BATCH[::2]])
    np.testing.assert_array_equal(output.probability, BATCH[[1, 2, 0, 0, 2], 0])


def test_a_batch_that_is_larger_than_any_before_is_answered(scripted: Scripts) -> None:
    many = np.tile(BATCH, (11, 1, 1, 1))
    runner = scripted(echo)
    np.testing.assert_array_equal(runner.run(many).probability, many[:, 0])
    np.testing.assert_array_equal(runner.run(BATCH).probability, BATCH[:, 0])


def test_an_answer_stays_when_the_next_batch_takes_its_buffer(scripted: Scripts) -> None:
    runner = scripted(echo)
    first = runner.run(BATCH)
    runner.run(255 - BATCH)
    np.testing.assert_array_equal(first.probability, BATCH[:, 0])


def test_a_staged_batch_is_answered_or_let_go_and_the_next_has_its_place(scripted: Scripts) -> None:
    runner = scripted(echo)
    runner.discard(runner.stage([BATCH]))
    staged = runner.stage([BATCH[:1], BATCH[1:]])
    np.testing.assert_array_equal(runner.run_staged(staged).probability, BATCH[:, 0])
    np.testing.assert_array_equal(runner.run(BATCH).probability, BATCH[:, 0])


def test_a_part_that_does_not_fit_is_refused_and_takes_no_place(scripted: Scripts) -> None:
    runner = scripted(echo)
    with pytest.raises(UnfitBatch):
        runner.stage([BATCH, BATCH[:, :, :16]])
    np.testing.assert_array_equal(runner.run(BATCH).probability, BATCH[:, 0])


def test_a_batch_that_is_a_view_with_gaps_is_read(scripted: Scripts) -> None:
    np.testing.assert_array_equal(scripted(echo).run(BATCH[::2]).probability, BATCH[::2, 0])


def test_the_batch_is_left_as_it_was(scripted: Scripts) -> None:
    batch = BATCH.copy()
    scripted(echo).run(batch)
    np.testing.assert_array_equal(batch, BATCH)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_pixel_that_is_not_finite_names_its_row(scripted: Scripts, value: float) -> None:
    def spoilt(display: Tensor) -> Answer:
        outline, scores = echo(display)
        outline[1, 0, 3, 4] = value
        return outline, scores

    with pytest.raises(BadOutput) as bad:
        scripted(spoilt).run(BATCH)
    assert bad.value.facts["rows"] == (1,)


def test_scores_that_are_not_finite_name_their_rows(scripted: Scripts) -> None:
    def spoilt(display: Tensor) -> Answer:
        outline, scores = echo(display)
        scores[0, 1] = scores[2, 0] = torch.nan
        return outline, scores

    with pytest.raises(BadOutput) as bad:
        scripted(spoilt).run(BATCH)
    assert bad.value.facts["rows"] == (0, 2)


@pytest.mark.parametrize(
    "rule",
    [
        lambda display: (display[:, :, ::2], torch.zeros(len(display), 2)),
        lambda display: (display[:1], torch.zeros(len(display), 2)),
        lambda display: (display, torch.zeros(len(display), 3)),
    ],
    ids=["half an outline", "one outline for all", "a score too many"],
)
def test_an_answer_of_another_shape_is_refused(scripted: Scripts, rule: Callable[[Tensor], Answer]) -> None:
    with pytest.raises(BadOutput, match="wrong shape") as bad:
        scripted(rule).run(BATCH)
    assert bad.value.facts["rows"] == (0, 1, 2)


@pytest.mark.parametrize(
    "batch",
    [BATCH.astype(np.float32), BATCH[:, 0], BATCH[:, :, :16], np.repeat(BATCH, 3, axis=1), BATCH[:0]],
    ids=["float32", "no channel", "half", "colour", "no image"],
)
def test_a_batch_that_the_card_does_not_describe_is_refused(scripted: Scripts, batch: np.ndarray) -> None:
    with pytest.raises(UnfitBatch):
        scripted(echo).run(batch)


def raising(error: Exception) -> Callable[[Tensor], Answer]:
    def rule(display: Tensor) -> Answer:
        raise error

    return rule


def test_exhausted_device_memory_is_told_from_failure_and_holds_on_to_nothing(scripted: Scripts) -> None:
    with pytest.raises(OutOfDeviceMemory) as out:
        scripted(raising(torch.OutOfMemoryError("no room"))).run(BATCH)
    assert isinstance(out.value, Unavailable)
    assert not isinstance(out.value, ModelFailed)
    assert out.value.facts["images"] == 3
    # A chained exception would keep the failed frames, and with them their tensors.
    assert out.value.__context__ is None


@pytest.mark.parametrize(
    "words",
    [
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
        "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: not enough memory: you tried to allocate 1099511627776 bytes.",
    ],
)
def test_a_library_that_finds_no_memory_is_taken_at_its_word_and_marked_as_a_guess(scripted: Scripts, words: str) -> None:
    with pytest.raises(OutOfDeviceMemory) as out:
        scripted(raising(RuntimeError(words))).run(BATCH)
    assert out.value.is_guess
    assert out.value.__context__ is None


def test_the_words_of_torchs_own_cpu_allocator_are_known() -> None:
    with pytest.raises(RuntimeError) as refused:
        torch.empty(2**60, dtype=torch.uint8)
    assert sounds_out_of_memory(refused.value)


def test_the_runtimes_code_for_memory_is_no_lost_device(scripted: Scripts) -> None:
    error = torch.AcceleratorError("CUDA error: out of memory")
    error.error_code = 2  # type: ignore[attr-defined]
    with pytest.raises(OutOfDeviceMemory) as out:
        scripted(raising(error)).run(BATCH)
    assert not out.value.is_guess


def test_a_failed_pass_holds_on_to_no_tensor(scripted: Scripts) -> None:
    kept: list[weakref.ref[Tensor]] = []

    def rule(display: Tensor) -> Answer:
        layer = display + 1
        kept.append(weakref.ref(layer))
        raise RuntimeError("sizes do not match")

    with pytest.raises(ModelFailed) as failed:
        scripted(rule).run(BATCH)
    assert isinstance(failed.value.__cause__, RuntimeError)
    assert kept[0]() is None


def test_a_forward_pass_that_raises_is_a_failed_model(scripted: Scripts) -> None:
    with pytest.raises(ModelFailed, match="the forward pass raised") as failed:
        scripted(raising(RuntimeError("sizes do not match"))).run(BATCH)
    assert failed.value.code == "model-failed"


def test_a_dead_device_ends_the_process_instead_of_failing_cases(scripted: Scripts) -> None:
    with pytest.raises(torch.AcceleratorError):
        scripted(raising(torch.AcceleratorError("illegal memory access"))).run(BATCH)


def test_a_runner_answers_again_after_a_failure(scripted: Scripts) -> None:
    answers = iter([raising(RuntimeError("once")), echo])

    def in_turn(display: Tensor) -> Answer:
        rule = next(answers)
        return rule(display)

    runner = scripted(in_turn)
    with pytest.raises(ModelFailed):
        runner.run(BATCH)
    np.testing.assert_array_equal(runner.run(BATCH).probability, BATCH[:, 0])


def test_two_threads_take_turns(scripted: Scripts) -> None:
    inside: list[int] = []
    most_inside: list[int] = []

    def counting(display: Tensor) -> Answer:
        inside.append(1)
        most_inside.append(len(inside))
        answer = echo(display)
        inside.pop()
        return answer

    runner = scripted(counting)
    threads = [threading.Thread(target=lambda: [runner.run(BATCH) for _ in range(20)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most_inside) == 60
    assert max(most_inside) == 1


def test_warm_up_measures_every_batch_size(small: tuple[Path, ModelCard]) -> None:
    durations_s = ModelRunner.load(small[0], device="cpu", threads=1).warm_up(sizes=(1, 2, 4))
    assert list(durations_s) == [1, 2, 4]
    assert all(duration_s > 0 for duration_s in durations_s.values())


def test_warm_up_runs_each_size_once_before_it_is_timed(scripted: Scripts) -> None:
    sizes: list[int] = []

    def noting(display: Tensor) -> Answer:
        sizes.append(len(display))
        return display, torch.zeros(len(display), 2)

    scripted(noting).warm_up(sizes=(1, 4))
    # The largest first: the others fit into the memory that it has taken.
    assert sizes == [4, 4, 1, 1]


def small_device(room: int) -> Callable[[Tensor], Answer]:
    """A device that holds so many images."""

    def rule(display: Tensor) -> Answer:
        if len(display) > room:
            raise torch.OutOfMemoryError("no room")
        return display, torch.zeros(len(display), 2)

    return rule


def test_warm_up_leaves_out_what_the_device_does_not_hold(scripted: Scripts) -> None:
    assert list(scripted(small_device(5)).warm_up()) == [1, 2, 4]
    with pytest.raises(OutOfDeviceMemory):
        scripted(small_device(0)).warm_up()


@pytest.mark.parametrize(("images", "sizes"), [(1, (1, 2, 4, 8, 16)), (16, (1, 2, 4, 8, 16)), (24, (1, 2, 4, 8, 16, 24))])
def test_every_size_up_to_the_ceiling_is_warmed(images: int, sizes: tuple[int, ...]) -> None:
    assert sizes_up_to(images) == sizes


def test_the_thread_count_holds_in_other_threads_too() -> None:
    before = torch.get_num_threads()
    found: list[int] = []
    try:
        set_threads(1)
        other = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
        other.start()
        other.join()
    finally:
        torch.set_num_threads(before)
    assert found == [1]
