"""A case's finding does not depend on its company in the batch: the shipped model, each image alone and in batches of 2 to 16."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from pipeline.imaging.components import find_components
from pipeline.imaging.measure import box_of
from pipeline.inference.card import SHIPPED_MODELS
from pipeline.inference.runner import ModelOutput, ModelRunner
from schemas.report import Box

PROBABILITY_TOLERANCE = 1
"""Of 255: the order of additions may turn a value at the edge of rounding."""
SCORE_TOLERANCE = 1e-4
MANY = 16

Images = npt.NDArray[np.uint8]


@pytest.fixture(scope="module")
def runner() -> ModelRunner:
    return ModelRunner.load(SHIPPED_MODELS / "breast-lesion-1", device="cpu", threads=1)


@pytest.fixture(scope="module")
def images() -> Images:
    """(image, channel, row, column): sixteen that differ, twelve of them with a lesion."""
    with np.load(SHIPPED_MODELS / "breast-lesion-1" / "golden.npz") as golden:
        eight: Images = golden["inputs"][:, np.newaxis]
    return np.concatenate([eight, eight[..., ::-1]])


Finding = tuple[bool, bool, tuple[Box, ...]]


def finding(runner: ModelRunner, output: ModelOutput, row: int) -> Finding:
    """What the report would say of a row: present, suspicious, and where."""
    thresholds = runner.card.thresholds
    scores = dict(zip(runner.card.scores, output.scores[row], strict=True))
    regions = find_components(output.probability[row] / np.float32(255), threshold=thresholds.mask, min_area_px=thresholds.min_area_px)
    return (
        bool(scores["presence"] >= thresholds.presence),
        bool(scores["malignancy"] >= thresholds.malignancy),
        tuple(box_of(region) for region in regions),
    )


@pytest.fixture(scope="module")
def alone(runner: ModelRunner, images: Images) -> list[ModelOutput]:
    return [runner.run(images[number : number + 1]) for number in range(MANY)]


def require_as_alone(runner: ModelRunner, images: Images, alone: Sequence[ModelOutput], order: Sequence[int]) -> None:
    """Run a batch of these images in this order; each answer is the one that it has by itself."""
    together = runner.run(images[list(order)])
    for row, number in enumerate(order):
        single = alone[number]
        np.testing.assert_allclose(
            together.probability[row].astype(int), single.probability[0].astype(int), rtol=0, atol=PROBABILITY_TOLERANCE
        )
        np.testing.assert_allclose(together.scores[row], single.scores[0], rtol=0, atol=SCORE_TOLERANCE)
        assert finding(runner, together, row) == finding(runner, single, 0)


def test_the_images_have_findings_and_none_that_could_be_told_apart(runner: ModelRunner, alone: list[ModelOutput]) -> None:
    findings = [finding(runner, output, 0) for output in alone]
    assert sum(is_present and bool(boxes) for is_present, _, boxes in findings) >= MANY // 2
    assert not all(is_present for is_present, _, _ in findings)


@pytest.mark.parametrize("size", range(2, MANY + 1))
def test_in_a_batch_of_any_size_each_has_the_answer_that_it_has_alone(
    runner: ModelRunner, images: Images, alone: list[ModelOutput], size: int
) -> None:
    # Other images at each size, so that each of them has stood at many places.
    require_as_alone(runner, images, alone, [(size * 5 + row) % MANY for row in range(size)])


@pytest.mark.parametrize("size", [2, 3, 7, 16])
def test_one_image_has_the_same_answer_at_every_place(runner: ModelRunner, images: Images, alone: list[ModelOutput], size: int) -> None:
    for position in range(size):
        order = list(range(1, size))
        order.insert(position, 0)
        require_as_alone(runner, images, alone, order)
