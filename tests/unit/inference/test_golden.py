import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.inference.golden import GoldenSetFailed
from pipeline.inference.runner import ModelRunner
from pipeline.inference.seeded import write_card
from pipeline.inference.weights import WeightsRefused
from schemas.model_card import ModelCard

INPUTS = np.random.default_rng(3).integers(0, 256, (3, 32, 32), dtype=np.uint8)


def own_answers(folder: Path) -> dict[str, Any]:
    """The golden set that the model passes: what it says itself."""
    output = ModelRunner.load(folder, device="cpu", threads=1).run(INPUTS[:, np.newaxis])
    return {"inputs": INPUTS, "probability": output.probability.copy(), "scores": output.scores.copy()}


def with_golden(folder: Path, card: ModelCard, golden: dict[str, Any]) -> ModelRunner:
    np.savez_compressed(folder / "golden.npz", **golden)
    digest = hashlib.sha256((folder / "golden.npz").read_bytes()).hexdigest()
    write_card(folder, card.model_copy(update={"golden": "golden.npz", "golden_sha256": digest}))
    return ModelRunner.load(folder, device="cpu", threads=1)


def test_answers_at_the_edge_of_the_tolerance_pass(small: tuple[Path, ModelCard]) -> None:
    golden = own_answers(small[0])
    low = golden["probability"] < 255
    golden["probability"] = np.where(low, golden["probability"] + 1, 254).astype(np.uint8)
    golden["scores"] = golden["scores"] + np.float32(9e-4)
    with_golden(*small, golden).check_golden()


def test_a_probability_two_steps_away_fails_and_names_its_row(small: tuple[Path, ModelCard]) -> None:
    golden = own_answers(small[0])
    value = int(golden["probability"][1, 7, 9])
    golden["probability"][1, 7, 9] = value + 2 if value < 128 else value - 2
    with pytest.raises(GoldenSetFailed) as failed:
        with_golden(*small, golden).check_golden()
    assert failed.value.facts["rows"] == (1,)


@pytest.mark.parametrize("score", [2.0, np.nan])
def test_a_score_that_is_off_or_no_number_fails_and_names_its_row(small: tuple[Path, ModelCard], score: float) -> None:
    golden = own_answers(small[0])
    golden["scores"][2, 0] = score
    with pytest.raises(GoldenSetFailed) as failed:
        with_golden(*small, golden).check_golden()
    assert failed.value.facts["rows"] == (2,)


@pytest.mark.parametrize(
    "different",
    [
        {"scores": np.array([None, None, None])},
        {"scores": np.zeros((3, 5), np.float32)},
        {"scores": np.zeros((3, 2), np.float64)},
        {"probability": np.zeros((3, 32, 31), np.uint8)},
        {"inputs": np.zeros((0, 32, 32), np.uint8)},
    ],
    ids=["objects", "more scores", "float64", "other side", "empty"],
)
def test_a_golden_set_of_another_form_fails(small: tuple[Path, ModelCard], different: dict[str, Any]) -> None:
    with pytest.raises(GoldenSetFailed):
        with_golden(*small, own_answers(small[0]) | different).check_golden()


def test_a_golden_set_with_a_missing_part_fails(small: tuple[Path, ModelCard]) -> None:
    with pytest.raises(GoldenSetFailed, match=r"small/golden\.npz: not a golden set"):
        with_golden(*small, {"inputs": INPUTS}).check_golden()


def test_a_golden_set_that_the_card_does_not_name_is_refused(small: tuple[Path, ModelCard]) -> None:
    runner = with_golden(*small, own_answers(small[0]))
    np.savez_compressed(small[0] / "golden.npz", inputs=INPUTS)
    with pytest.raises(WeightsRefused, match=r"golden\.npz: its digest"):
        runner.check_golden()


def test_a_card_without_a_golden_set_has_nothing_to_check(small: tuple[Path, ModelCard]) -> None:
    ModelRunner.load(small[0], device="cpu", threads=1).check_golden()
