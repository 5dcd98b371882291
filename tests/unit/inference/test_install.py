from pathlib import Path

import pytest

from pipeline.inference.card import BadModelFolder, survey
from pipeline.inference.install import install
from schemas.model_card import ModelCard


def test_a_folder_arrives_whole_under_the_name_of_its_version(small: tuple[Path, ModelCard], tmp_path: Path) -> None:
    folder, card = small
    target = tmp_path / "house"
    assert install(folder, target) == card.reference
    assert survey(target).cards[card.reference] == (card, target / f"{card.name}-{card.version}")
    assert [each.name for each in target.iterdir()] == [f"{card.name}-{card.version}"]


def test_a_version_that_is_there_is_not_replaced(small: tuple[Path, ModelCard], tmp_path: Path) -> None:
    folder, _ = small
    install(folder, tmp_path / "house")
    with pytest.raises(BadModelFolder, match="a version is never changed"):
        install(folder, tmp_path / "house")
    assert len(list((tmp_path / "house").iterdir())) == 1


def test_a_copy_that_fails_leaves_nothing(small: tuple[Path, ModelCard], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(BadModelFolder, match="No space left on device"):
        install(small[0], tmp_path / "house")
    assert list((tmp_path / "house").iterdir()) == []
