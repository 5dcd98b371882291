"""The golden set of a model folder: inputs with the answers that another implementation gave."""

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from pipeline.errors import SecondreadError
from pipeline.inference.weights import verified_bytes
from schemas.model_card import ModelCard

PROBABILITY_TOLERANCE: Final = 1
"""Of 255. The order of additions differs between devices and may turn a value at the edge of rounding, no more."""
SCORE_TOLERANCE: Final = 1e-3
"""On scores of 0 to 1."""


class GoldenSetFailed(SecondreadError):
    """A loaded model does not give the stored answers to its golden inputs, or the set cannot be read."""

    code = "golden-set-failed"
    title = "A model does not reproduce its stored answers"
    advice = "Keep the previous version; have the model folder and the device checked before it serves."


@dataclass(frozen=True, slots=True)
class GoldenSet:
    """What the model is asked when it is loaded, and what it must answer."""

    inputs: npt.NDArray[np.uint8]
    """(image, channel, row, column)."""
    probability: npt.NDArray[np.uint8]
    """(image, row, column), x 255."""
    scores: npt.NDArray[np.float32]
    """(image, score), 0 to 1."""

    def filling(self, size: int) -> "GoldenSet":
        """So many of the images, from the first on, round and round."""
        order = np.arange(size) % len(self.inputs)
        return GoldenSet(self.inputs[order], self.probability[order], self.scores[order])

    def require_agreement(self, probability: npt.NDArray[np.uint8], scores: npt.NDArray[np.float32]) -> None:
        """Compare answers with the stored ones.

        Raises
        ------
        GoldenSetFailed
            An answer is off by more than the tolerance; `rows` names the images.
        """
        if probability.shape != self.probability.shape or scores.shape != self.scores.shape:
            raise GoldenSetFailed("the golden answers have another shape than the model's", found=probability.shape, scores=scores.shape)
        probability_gap = np.abs(probability.astype(np.int16) - self.probability).max(axis=(1, 2))
        score_gap = np.abs(scores - self.scores).max(axis=1)
        # Written so that a gap that is no number counts as too large.
        is_near = (probability_gap <= PROBABILITY_TOLERANCE) & (score_gap <= SCORE_TOLERANCE)
        if not is_near.all():
            raise GoldenSetFailed(
                "the model does not give its golden answers",
                rows=tuple(int(row) for row in np.flatnonzero(~is_near)),
                probability_gap=int(probability_gap.max()),
                score_gap=float(score_gap.max()),
            )


def read_golden(folder: Path, card: ModelCard) -> GoldenSet | None:
    """Read the golden set that the card names, digest first and without pickle; None where the card names none.

    Raises
    ------
    WeightsRefused
        The file is missing or its digest is not the card's.
    GoldenSetFailed
        The file holds no golden set.
    """
    if card.golden is None or card.golden_sha256 is None:
        return None
    content = verified_bytes(folder / card.golden, sha256=card.golden_sha256)
    place = f"{folder.name}/{card.golden}"
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            golden = GoldenSet(inputs=stored["inputs"][:, np.newaxis], probability=stored["probability"], scores=stored["scores"])
    except (ValueError, KeyError, IndexError, EOFError, zipfile.BadZipFile) as error:
        raise GoldenSetFailed(f"{place}: not a golden set", file=place) from error
    if (
        golden.inputs.dtype != np.uint8
        or golden.probability.dtype != np.uint8
        or golden.scores.dtype != np.float32
        or not len(golden.inputs)
    ):
        raise GoldenSetFailed(f"{place}: empty, or of other types than uint8, uint8 and float32", file=place)
    return golden
