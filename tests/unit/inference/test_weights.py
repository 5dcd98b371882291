import hashlib
import pickle
from pathlib import Path

import pytest

from pipeline.inference.weights import WeightsRefused, read_weights
from schemas.model_card import ModelCard
from tests.unit.inference.canary import Canary


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "pickle-was-opened"


@pytest.fixture
def pickled(small: tuple[Path, ModelCard], canary: Path) -> tuple[Path, ModelCard]:
    """A model folder whose weights file is a pickle, and the card with the old digest."""
    folder, card = small
    (folder / card.weights).write_bytes(pickle.dumps(Canary(canary)))
    return folder, card


def test_the_canary_would_sing(pickled: tuple[Path, ModelCard], canary: Path) -> None:
    pickle.loads((pickled[0] / pickled[1].weights).read_bytes())
    assert canary.exists()


def test_a_wrong_digest_is_refused_before_the_file_is_parsed(pickled: tuple[Path, ModelCard], canary: Path) -> None:
    with pytest.raises(WeightsRefused, match=r"small/weights\.safetensors: its digest is not the card's") as refused:
        read_weights(*pickled)
    assert refused.value.facts["fault"] == "digest"
    assert not canary.exists()


def test_a_pickle_with_the_right_digest_is_refused_unopened(pickled: tuple[Path, ModelCard], canary: Path) -> None:
    folder, card = pickled
    digest = hashlib.sha256((folder / card.weights).read_bytes()).hexdigest()
    with pytest.raises(WeightsRefused, match="not a safetensors file"):
        read_weights(folder, card.model_copy(update={"weights_sha256": digest}))
    assert not canary.exists()


def test_one_flipped_bit_is_refused(small: tuple[Path, ModelCard]) -> None:
    folder, card = small
    content = bytearray((folder / card.weights).read_bytes())
    content[-1] ^= 1
    (folder / card.weights).write_bytes(content)
    with pytest.raises(WeightsRefused, match="digest"):
        read_weights(folder, card)


def test_weights_that_are_not_there_are_refused_by_name(small: tuple[Path, ModelCard]) -> None:
    folder, card = small
    (folder / card.weights).unlink()
    with pytest.raises(WeightsRefused, match=r"small/weights\.safetensors: cannot be read"):
        read_weights(folder, card)
