from pathlib import Path

import numpy as np
import pytest

from pipeline.inference.agreement import Agreement, Reading, compare
from schemas.model_card import ModelCard


def reading(card: ModelCard, columns: slice, *, malignancy: float, presence: float) -> Reading:
    """One image of 4 x 8 with an outline in these columns."""
    probability = np.zeros((1, 4, 8), np.uint8)
    probability[:, :, columns] = 255
    return Reading(card, probability, np.array([[malignancy, presence]], np.float32))


@pytest.fixture
def card(small: tuple[Path, ModelCard]) -> ModelCard:
    return small[1]


def test_a_reading_agrees_with_itself(card: ModelCard) -> None:
    same = reading(card, slice(2, 4), malignancy=0.2, presence=0.9)
    assert compare(same, same) == Agreement(True, 1.0, 0.0)


def test_outlines_that_share_half_of_their_area_have_a_dice_of_a_half(card: ModelCard) -> None:
    one, other = (reading(card, columns, malignancy=0.2, presence=0.9) for columns in (slice(0, 4), slice(2, 6)))
    assert compare(one, other).dice == 0.5


def test_two_empty_outlines_agree(card: ModelCard) -> None:
    empty = reading(card, slice(0, 0), malignancy=0.2, presence=0.1)
    assert compare(empty, empty).dice == 1.0


def test_each_version_decides_by_its_own_operating_points(card: ModelCard) -> None:
    stricter = card.model_copy(update={"thresholds": card.thresholds.model_copy(update={"presence": 0.95})})
    answer = reading(card, slice(2, 4), malignancy=0.2, presence=0.9)
    assert not compare(answer, reading(stricter, slice(2, 4), malignancy=0.2, presence=0.9)).decides_alike


def test_scores_are_compared_by_their_names(card: ModelCard) -> None:
    crossed = card.model_copy(update={"scores": ("presence", "malignancy")})
    answer = reading(card, slice(2, 4), malignancy=0.2, presence=0.9)
    shadow = Reading(crossed, answer.probability, np.array([[0.9, 0.3]], np.float32))
    assert compare(answer, shadow).score_gap == pytest.approx(0.1)
