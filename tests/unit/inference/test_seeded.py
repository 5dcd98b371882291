from pathlib import Path

import numpy as np
import torch

from pipeline.inference.card import load_card
from pipeline.inference.runner import ModelRunner
from pipeline.inference.seeded import write_card, write_seeded_model


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_one_seed_gives_one_folder(tmp_path: Path) -> None:
    for name in ("one", "other"):
        write_seeded_model(tmp_path / name, seed=7, side_px=32, widths=(4, 4, 4, 4))
    assert content(tmp_path / "one") == content(tmp_path / "other")


def test_another_seed_is_another_algorithm(tmp_path: Path) -> None:
    one, other = (write_seeded_model(tmp_path / str(seed), seed=seed, side_px=32, widths=(4, 4, 4, 4)) for seed in (7, 8))
    assert one.weights_sha256 != other.weights_sha256
    assert one.device_uid != other.device_uid


def test_the_written_card_is_the_returned_one(tmp_path: Path) -> None:
    card = write_seeded_model(tmp_path / "model", seed=7, side_px=64, widths=(4, 8, 8, 4))
    assert load_card(tmp_path / "model") == card


def test_writing_the_shipped_card_and_reading_it_gives_the_same_card(shipped: Path, tmp_path: Path) -> None:
    card = load_card(shipped)
    write_card(tmp_path, card)
    assert load_card(tmp_path) == card


def test_the_callers_random_numbers_are_left_alone(tmp_path: Path) -> None:
    torch.manual_seed(1)
    expected = torch.rand(4)
    torch.manual_seed(1)
    write_seeded_model(tmp_path / "model", seed=7, side_px=32, widths=(4, 4, 4, 4))
    torch.testing.assert_close(torch.rand(4), expected, rtol=0, atol=0)


def test_a_seeded_model_answers_finitely_at_the_shipped_widths(tmp_path: Path) -> None:
    write_seeded_model(tmp_path / "model", seed=7, side_px=96)
    noise = np.random.default_rng(0).integers(0, 256, (2, 1, 96, 96), dtype=np.uint8)
    output = ModelRunner.load(tmp_path / "model", device="cpu", threads=1).run(noise)
    assert output.probability.shape == (2, 96, 96)
    assert np.isfinite(output.scores).all()
