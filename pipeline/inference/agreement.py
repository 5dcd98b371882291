"""How alike two versions of a model read one case."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from schemas.model_card import ModelCard

MOST = 255
"""A probability of 1."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one version answered for one case, and the card that says what it means."""

    card: ModelCard
    probability: npt.NDArray[np.uint8]
    """(image, row, column), x 255."""
    scores: npt.NDArray[np.float32]
    """(image, score), 0 to 1, in the order of the card's `scores`."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Two readings of a case, compared."""

    decides_alike: bool
    """Each image is on the same side of each version's own operating points for presence and malignancy."""
    dice: float
    """Overlap of the outlines of all images together, each by its own version's mask threshold; 1 where both are empty."""
    score_gap: float
    """Largest difference between scores of one name."""


def compare(answer: Reading, shadow: Reading) -> Agreement:
    """Compare the answer that was given with what a shadow would have said of the same input."""
    ours, theirs = _outline(answer), _outline(shadow)
    size = int(ours.sum() + theirs.sum())
    dice = 2 * int((ours & theirs).sum()) / size if size else 1.0
    common = sorted(set(answer.card.scores) & set(shadow.card.scores))
    gap = max(float(np.abs(_score(answer, name) - _score(shadow, name)).max()) for name in common)
    return Agreement(bool((_decisions(answer) == _decisions(shadow)).all()), dice, gap)


def _outline(reading: Reading) -> npt.NDArray[np.bool_]:
    outline: npt.NDArray[np.bool_] = reading.probability >= reading.card.thresholds.mask * MOST
    return outline


def _score(reading: Reading, name: str) -> npt.NDArray[np.float32]:
    return reading.scores[:, reading.card.scores.index(name)]


def _decisions(reading: Reading) -> npt.NDArray[np.bool_]:
    points = reading.card.thresholds
    return np.stack([_score(reading, "presence") >= points.presence, _score(reading, "malignancy") >= points.malignancy])
