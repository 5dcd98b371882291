"""A batch that was staged ahead: used once, by the runner that has it, for exactly its members."""

from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest

from pipeline.inference.read_ahead import ReadAhead
from pipeline.inference.runner import ModelRunner
from schemas.model_card import ModelCard
from schemas.tensor import TensorHandle

BATCH = np.random.default_rng(5).integers(1, 255, (2, 1, 32, 32), dtype=np.uint8)


def handle(number: int) -> TensorHandle:
    return TensorHandle(
        store="memory",
        key=f"{number:032x}",
        shape=(1, 1, 32, 32),
        dtype="uint8",
        digest=f"{number:064x}",
        case_id=UUID(int=number),
        generation=1,
        expires_at=datetime(2026, 1, 2, tzinfo=UTC),
    )


@pytest.fixture
def runner(small: tuple[Path, ModelCard]) -> ModelRunner:
    return ModelRunner.load(small[0], device="cpu", threads=1)


@pytest.fixture
def ahead(runner: ModelRunner) -> ReadAhead:
    values = {handle(number): BATCH[number : number + 1] for number in range(2)}
    return ReadAhead(values, runner, runner.stage(list(values.values())))


def is_free(runner: ModelRunner) -> bool:
    """Whether the runner's one slot on a CPU is there again: else this would never end."""
    runner.discard(runner.stage([BATCH]))
    return True


def test_the_very_batch_is_taken_once(runner: ModelRunner, ahead: ReadAhead) -> None:
    staged = ahead.take_staged([handle(0), handle(1)], runner=runner)

    assert staged is not None
    np.testing.assert_array_equal(runner.run_staged(staged).seals, runner.run(BATCH).seals)
    assert ahead.take_staged([handle(0), handle(1)], runner=runner) is None


@pytest.mark.parametrize("numbers", [(1, 0), (0,), (0, 1, 2), (0, 2), ()])
def test_another_batch_is_not_taken_for_it_and_its_place_is_free(runner: ModelRunner, ahead: ReadAhead, numbers: tuple[int, ...]) -> None:
    assert ahead.take_staged([handle(number) for number in numbers], runner=runner) is None
    assert is_free(runner)


def test_another_runner_does_not_take_it(runner: ModelRunner, ahead: ReadAhead, small: tuple[Path, ModelCard]) -> None:
    other = ModelRunner.load(small[0], device="cpu", threads=1)

    assert ahead.take_staged([handle(0), handle(1)], runner=other) is None
    assert is_free(runner)


def test_letting_go_twice_is_fine(runner: ModelRunner, ahead: ReadAhead) -> None:
    ahead.let_go()
    ahead.let_go()
    assert is_free(runner)
