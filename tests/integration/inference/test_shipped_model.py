"""The shipped model as it is loaded and served, against answers of another implementation of its network."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from pipeline.inference.card import SHIPPED_MODELS
from pipeline.inference.registry import ModelRegistry
from pipeline.inference.runner import ModelRunner

GOLDEN = SHIPPED_MODELS / "breast-lesion-1" / "golden.npz"


@pytest.fixture(scope="module")
def runner() -> ModelRunner:
    registry = ModelRegistry(SHIPPED_MODELS, device="cpu", threads=1)
    registry.load()
    assert not registry.refused
    return registry.runner("breast-lesion:1")


@pytest.fixture(scope="module")
def inputs() -> npt.NDArray[np.uint8]:
    """(image, channel, row, column): synthetic images, with a lesion in the first six."""
    with np.load(GOLDEN) as golden:
        images: npt.NDArray[np.uint8] = golden["inputs"][:, np.newaxis]
    return images


def test_the_answers_are_those_of_the_independent_implementation(runner: ModelRunner, inputs: npt.NDArray[np.uint8]) -> None:
    output = runner.run(inputs)
    with np.load(GOLDEN) as golden:
        np.testing.assert_allclose(output.probability.astype(int), golden["probability"].astype(int), rtol=0, atol=1)
        np.testing.assert_allclose(output.scores, golden["scores"], rtol=0, atol=1e-3)


def test_a_lesion_is_outlined_where_there_is_one(runner: ModelRunner, inputs: npt.NDArray[np.uint8]) -> None:
    areas_px = (runner.run(inputs).probability >= 128).sum(axis=(1, 2))
    assert areas_px[:6].min() > 20 * areas_px[6:].max()


@pytest.mark.parametrize("size", [2, 3, 8])
def test_an_images_answer_does_not_depend_on_its_company(runner: ModelRunner, inputs: npt.NDArray[np.uint8], size: int) -> None:
    together = runner.run(inputs[:size])
    for row in range(size):
        alone = runner.run(inputs[row : row + 1])
        np.testing.assert_allclose(together.probability[row].astype(int), alone.probability[0].astype(int), rtol=0, atol=1)
        np.testing.assert_allclose(together.scores[row], alone.scores[0], rtol=0, atol=1e-4)


def test_an_images_answer_does_not_depend_on_its_place(runner: ModelRunner, inputs: npt.NDArray[np.uint8]) -> None:
    forward, backward = runner.run(inputs), runner.run(inputs[::-1])
    np.testing.assert_allclose(forward.probability.astype(int), backward.probability[::-1].astype(int), rtol=0, atol=1)
    np.testing.assert_allclose(forward.scores, backward.scores[::-1], rtol=0, atol=1e-4)


def test_an_empty_image_in_the_batch_leaves_its_neighbours_alone(runner: ModelRunner, inputs: npt.NDArray[np.uint8]) -> None:
    beside_nothing = runner.run(np.stack([inputs[0], np.zeros_like(inputs[0]), np.full_like(inputs[0], 255)]))
    alone = runner.run(inputs[:1])
    np.testing.assert_allclose(beside_nothing.probability[0].astype(int), alone.probability[0].astype(int), rtol=0, atol=1)


@pytest.mark.corpus
def test_real_images_give_the_answers_of_the_training_run(runner: ModelRunner, corpus: Path) -> None:
    with np.load(corpus.parents[1] / "model" / "golden.npz") as golden:
        inputs, mask, logits = golden["x"], golden["mask"], golden["scores"].astype(np.float64)
    output = runner.run(inputs[:, np.newaxis])
    # The stored outline is already cut at one half; a value within a step of the cut may fall on either side.
    is_clear = np.abs(output.probability.astype(float) - 127.5) > 1
    np.testing.assert_array_equal((output.probability > 127.5)[is_clear], mask[is_clear])
    assert is_clear.mean() > 0.99
    np.testing.assert_allclose(output.scores, 1 / (1 + np.exp(-logits)), rtol=0, atol=1 / 255)
