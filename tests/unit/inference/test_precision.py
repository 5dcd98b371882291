"""A precision other than float32: only where the card allows it and the golden set confirms it, at every batch size."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from pipeline.inference import golden
from pipeline.inference.golden import GoldenSetFailed
from pipeline.inference.runner import WARM_UP_SIZES, ModelRunner
from pipeline.inference.seeded import write_card
from schemas.model_card import ModelCard, Precision

INPUTS = np.random.default_rng(3).integers(0, 256, (3, 32, 32), dtype=np.uint8)

Small = tuple[Path, ModelCard]


def narrow(folder: Path) -> ModelRunner:
    return ModelRunner.load(folder, device="cpu", threads=1, precision="bfloat16")


def with_golden(folder: Path, card: ModelCard, *, precisions: tuple[Precision, ...] = ("float32", "bfloat16")) -> None:
    """Let the float32 network's own answers be the golden ones."""
    answers = ModelRunner.load(folder, device="cpu", threads=1).run(INPUTS[:, np.newaxis])
    np.savez_compressed(folder / "golden.npz", inputs=INPUTS, probability=answers.probability, scores=answers.scores)
    digest = hashlib.sha256((folder / "golden.npz").read_bytes()).hexdigest()
    write_card(folder, card.model_copy(update={"golden": "golden.npz", "golden_sha256": digest, "precisions": precisions}))


@pytest.fixture
def forgiving(monkeypatch: pytest.MonkeyPatch) -> None:
    """A golden set that says yes."""
    monkeypatch.setattr(golden, "PROBABILITY_TOLERANCE", 255)
    monkeypatch.setattr(golden, "SCORE_TOLERANCE", 1.0)


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """A golden set that hears eight bits of mantissa."""
    monkeypatch.setattr(golden, "SCORE_TOLERANCE", 1e-6)


@pytest.mark.usefixtures("forgiving")
def test_what_card_and_golden_set_allow_is_used_and_named_with_each_answer(small: Small) -> None:
    with_golden(*small)
    runner = narrow(small[0])
    output = runner.run(INPUTS[:, np.newaxis])
    assert (runner.precision, output.precision) == ("bfloat16", "bfloat16")
    # It is really computed in fewer bits.
    assert (output.scores != ModelRunner.load(small[0], device="cpu", threads=1).run(INPUTS[:, np.newaxis]).scores).any()
    assert output.scores.dtype == np.float32


@pytest.mark.usefixtures("forgiving")
def test_what_the_card_does_not_allow_is_not_used(small: Small) -> None:
    with_golden(*small, precisions=("float32", "float16"))
    assert narrow(small[0]).precision == "float32"


def test_without_a_golden_set_nothing_confirms_it(small: Small) -> None:
    write_card(small[0], small[1].model_copy(update={"precisions": ("bfloat16",)}))
    assert narrow(small[0]).precision == "float32"


@pytest.mark.usefixtures("strict")
def test_what_the_golden_set_does_not_confirm_is_not_used_and_the_model_serves_in_float32(small: Small) -> None:
    with_golden(*small)
    runner = narrow(small[0])
    assert runner.precision == "float32"
    runner.check_golden()


@pytest.mark.usefixtures("forgiving")
def test_the_golden_set_is_asked_at_each_batch_size(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    with_golden(*small)
    runner = ModelRunner.load(small[0], device="cpu", threads=1)
    runner.warm_up()
    asked: list[int] = []
    run_parts = runner.run_parts

    def noting(parts: list[np.ndarray]) -> object:
        asked.append(sum(map(len, parts)))
        return run_parts(parts)

    monkeypatch.setattr(runner, "run_parts", noting)
    runner.check_golden()
    assert tuple(asked) == WARM_UP_SIZES


def test_a_size_whose_answers_differ_is_found(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    with_golden(*small)
    runner = ModelRunner.load(small[0], device="cpu", threads=1)
    runner.warm_up()
    run_parts = runner.run_parts

    def off_at_eight(parts: list[np.ndarray]) -> object:
        output = run_parts(parts)
        if len(output.scores) == 8:
            output.scores[7] += 0.01
        return output

    monkeypatch.setattr(runner, "run_parts", off_at_eight)
    with pytest.raises(GoldenSetFailed) as failed:
        runner.check_golden()
    assert failed.value.facts["rows"] == (7,)
