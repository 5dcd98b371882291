import gc
import hashlib
import shutil
import weakref
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save
from structlog.testing import capture_logs

from pipeline.errors import Unavailable
from pipeline.inference.registry import ModelNotServed, ModelRegistry
from pipeline.inference.seeded import write_card, write_seeded_model
from schemas.model_card import ModelCard


def with_weight(folder: Path, card: ModelCard, value: float) -> None:
    """Put one weight of that value into a model folder, and make the digest fit."""
    weights = load_file(folder / card.weights)
    weights["outline.0.bias"][3] = value
    (folder / card.weights).write_bytes(save(weights))
    digest = hashlib.sha256((folder / card.weights).read_bytes()).hexdigest()
    write_card(folder, card.model_copy(update={"weights_sha256": digest}))


@pytest.fixture
def models_dir(small: tuple[Path, ModelCard], shipped: Path) -> Path:
    """One good folder among bad ones of every kind."""
    models_dir = small[0].parent
    (models_dir / "no-card").mkdir()
    write_seeded_model(models_dir / "bad-digest", seed=2, side_px=32, widths=(4, 4, 4, 4))
    (models_dir / "bad-digest" / "weights.safetensors").write_bytes(b"something else")
    not_a_number = models_dir / "not-a-number"
    with_weight(not_a_number, write_seeded_model(not_a_number, seed=3, side_px=32, widths=(4, 4, 4, 4)), torch.nan)
    # The golden answers are the shipped model's; the one weight is not.
    shutil.copytree(shipped, models_dir / "retouched")
    card = (models_dir / "retouched" / "card.toml").read_text(encoding="utf-8")
    weights = load_file(shipped / "weights.safetensors")
    weights["out.0.bias"] += 0.5
    (models_dir / "retouched" / "weights.safetensors").write_bytes(save(weights))
    digests = [hashlib.sha256((folder / "weights.safetensors").read_bytes()).hexdigest() for folder in (shipped, models_dir / "retouched")]
    (models_dir / "retouched" / "card.toml").write_text(
        card.replace(f'weights_sha256 = "{digests[0]}"', f'weights_sha256 = "{digests[1]}"')
    )
    return models_dir


def test_a_bad_folder_is_refused_and_named_and_the_others_are_served(models_dir: Path, small: tuple[Path, ModelCard]) -> None:
    registry = ModelRegistry(models_dir, device="cpu", threads=1)
    with capture_logs() as logs:
        registry.load()
    assert registry.served == (small[1].reference,)
    assert {name: error.code for name, error in registry.refused.items()} == {
        "no-card": "bad-model-folder",
        "bad-digest": "weights-refused",
        "not-a-number": "bad-output",
        "retouched": "golden-set-failed",
    }
    assert {entry["folder"] for entry in logs if entry["event"] == "model_folder_refused"} == set(registry.refused)


def test_a_served_model_has_its_runner_and_its_measured_durations(small: tuple[Path, ModelCard]) -> None:
    folder, card = small
    registry = ModelRegistry(folder.parent)
    registry.load()
    assert registry.runner(card.reference).card == card
    assert set(registry.durations_s(card.reference)) == {1, 2, 4, 8, 16}


def test_nothing_is_served_before_it_was_loaded(small: tuple[Path, ModelCard]) -> None:
    with pytest.raises(ModelNotServed) as missing:
        ModelRegistry(small[0].parent).runner(small[1].reference)
    assert isinstance(missing.value, Unavailable)
    assert missing.value.facts == {"model": small[1].reference}


def test_versions_are_admitted_one_by_one_beside_each_other(small: tuple[Path, ModelCard]) -> None:
    folder, card = small
    other = write_seeded_model(folder.parent / "other", seed=2, side_px=32, widths=(4, 4, 4, 4))
    registry = ModelRegistry(folder.parent)
    assert registry.admit(card.reference) is None
    assert registry.served == (card.reference,)
    assert registry.admit(other.reference, in_background=True) is None
    assert set(registry.served) == {card.reference, other.reference}
    assert all(seconds > 0 for seconds in registry.durations_s(other.reference).values())


def test_a_version_without_a_folder_is_refused(small: tuple[Path, ModelCard]) -> None:
    refusal = ModelRegistry(small[0].parent).admit("seeded-unet:99")
    assert refusal is not None
    assert refusal.code == "bad-model-folder"


def test_what_a_library_raises_on_a_folder_is_a_refusal_too(small: tuple[Path, ModelCard], monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*_: object, **__: object) -> None:
        raise AttributeError("of a library")

    monkeypatch.setattr("pipeline.inference.registry.ModelRunner.load", raising)
    refusal = ModelRegistry(small[0].parent).admit(small[1].reference)
    assert refusal is not None
    assert refusal.code == "model-failed"
    assert "AttributeError" in str(refusal)


def test_a_retired_version_takes_no_new_work_but_finishes_what_it_has(small: tuple[Path, ModelCard]) -> None:
    folder, card = small
    registry = ModelRegistry(folder.parent)
    registry.load()
    registry.retire(card.reference)
    assert not registry.served
    assert registry.runner(card.reference).card == card
    assert registry.admit(card.reference) is None
    assert registry.served == (card.reference,)


def test_the_memory_of_a_dropped_version_is_free(small: tuple[Path, ModelCard]) -> None:
    folder, card = small
    registry = ModelRegistry(folder.parent)
    registry.load()
    runner = weakref.ref(registry.runner(card.reference))
    registry.drop(card.reference)
    gc.collect()
    assert runner() is None
    with pytest.raises(ModelNotServed):
        registry.runner(card.reference)
