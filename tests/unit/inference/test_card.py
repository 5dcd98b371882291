import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pydicom.sr.codedict import codes
from structlog.testing import capture_logs

from pipeline.inference.card import SHIPPED_MODELS, BadModelFolder, choose_card, find_cards, load_card, survey, why_not_applicable
from pipeline.inference.seeded import write_card
from schemas.instance import InstanceHeader
from schemas.model_card import ModelCard

Header = Callable[..., InstanceHeader]


def edited(folder: Path, old: str, new: str) -> Path:
    """The folder, with one piece of its card replaced."""
    text = (folder / "card.toml").read_text(encoding="utf-8")
    assert old in text
    (folder / "card.toml").write_text(text.replace(old, new, 1), encoding="utf-8")
    return folder


def test_the_shipped_card_names_the_files_that_lie_beside_it(shipped: Path) -> None:
    card = load_card(shipped)
    assert card.reference == "breast-lesion:1"
    for name, digest in [(card.weights, card.weights_sha256), (card.golden, card.golden_sha256)]:
        assert hashlib.sha256((shipped / str(name)).read_bytes()).hexdigest() == digest


def test_the_shipped_card_tells_a_clinician_that_the_presence_figure_is_not_to_be_quoted_alone(shipped: Path) -> None:
    limits = load_card(shipped).limits
    assert any("0.999" in limit and "do not quote it alone" in limit for limit in limits)
    assert any("0.885" in limit for limit in limits)
    assert all(limit.endswith(".") for limit in limits)


def test_the_shipped_folder_carries_the_notice_of_its_training_data(shipped: Path) -> None:
    assert "Permission is hereby granted" in (shipped / "LICENSE-BUS-BRA.txt").read_text(encoding="utf-8")
    assert "BUS-BRA: A Breast Ultrasound Dataset" in load_card(shipped).data


@pytest.mark.parametrize(
    ("field", "code"),
    [
        ("finding", codes.cid7159.Mass),
        ("category", codes.cid7150.MorphologicallyAbnormalStructure),
        ("site", codes.cid4031.Breast),
    ],
)
def test_the_shipped_codes_are_those_of_the_context_groups(shipped: Path, field: str, code: object) -> None:
    concept = getattr(load_card(shipped).codes, field)
    assert (concept.value, concept.scheme, concept.meaning) == (code.value, code.scheme_designator, code.meaning)  # type: ignore[attr-defined]


def test_reading_a_card_does_not_load_torch() -> None:
    program = (
        "import sys; from pipeline.inference.card import SHIPPED_MODELS, find_cards; "
        "assert find_cards(SHIPPED_MODELS); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[3]).returncode == 0


def test_a_folder_without_a_card_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BadModelFolder, match=r"empty/card\.toml: cannot be read"):
        load_card(tmp_path / "empty")


def test_a_card_that_is_no_toml_is_refused_with_the_line(small: tuple[Path, ModelCard]) -> None:
    folder = edited(small[0], 'name = "seeded-unet"', "name = seeded-unet")
    with pytest.raises(BadModelFolder, match=r"small/card\.toml: not valid TOML .*line 1"):
        load_card(folder)


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("side_px = 32", "side_px = 8", "input.side_px"),
        ("manufacturer =", "maker =", "manufacturer"),
        ("manufacturer =", "maker =", "maker"),
        ('"weights.safetensors"', '"weights.pt"', "weights"),
        ('"weights.safetensors"', '"../weights.safetensors"', "weights"),
        ('["malignancy", "presence"]', '["malignancy"]', "scores"),
        ('["malignancy", "presence"]', '["malignancy", "presence", "presence"]', "scores"),
        ("weights =", 'golden = "golden.npz"\nweights =', "golden"),
    ],
)
def test_a_faulty_card_is_refused_and_the_field_named(small: tuple[Path, ModelCard], old: str, new: str, field: str) -> None:
    folder = edited(small[0], old, new)
    with pytest.raises(BadModelFolder) as refused:
        load_card(folder)
    assert refused.value.code == "bad-model-folder"
    assert "small/card.toml" in str(refused.value)
    assert field in str(refused.value)


def test_find_cards_keeps_the_good_folders_and_logs_the_bad_one(small: tuple[Path, ModelCard]) -> None:
    folder, card = small
    (folder.parent / "broken").mkdir()
    with capture_logs() as logs:
        found = find_cards(folder.parent)
    assert found == {card.reference: (card, folder)}
    assert [(entry["event"], entry["folder"]) for entry in logs] == [("model_folder_refused", "broken")]


def test_of_two_folders_with_one_name_and_version_the_second_is_refused(small: tuple[Path, ModelCard]) -> None:
    folder, card = small
    shutil.copytree(folder, folder.parent / "twin")
    found = survey(folder.parent)
    assert found.cards[card.reference][1] == folder
    assert "is already small" in str(found.refused["twin"])


def test_a_models_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadModelFolder, match="nowhere: the models folder cannot be read"):
        find_cards(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("different", "reason"),
    [
        ({}, None),
        ({"body_part": None}, None),
        ({"frame_count": 16}, None),
        ({"modality": "CT"}, "modality-not-covered"),
        ({"modality": "CR", "body_part": "CHEST"}, "modality-not-covered"),
        ({"body_part": "THYROID"}, "body-part-not-covered"),
        ({"frame_count": 17}, "too-many-frames"),
    ],
)
def test_the_shipped_model_is_shown_breast_ultrasound_alone(
    shipped: Path, header: Header, different: dict[str, object], reason: str | None
) -> None:
    assert why_not_applicable(load_card(shipped), header(**different)) == reason


def test_an_unstated_body_part_is_refused_where_the_card_wants_it_stated(shipped: Path, header: Header) -> None:
    card = load_card(shipped)
    strict = card.model_copy(update={"applicability": card.applicability.model_copy(update={"body_part_may_be_unstated": False})})
    assert why_not_applicable(strict, header(body_part=None)) == "body-part-unstated"


def test_the_newest_version_of_a_model_is_chosen(small: tuple[Path, ModelCard], header: Header) -> None:
    folder, card = small
    for version in ("1.9", "1.10", "1.2"):
        other = folder.parent / version
        other.mkdir()
        write_card(other, card.model_copy(update={"name": "a-model", "version": version}))
    chosen = choose_card(find_cards(folder.parent), header())
    assert chosen is not None
    assert chosen.reference == "a-model:1.10"


def test_no_model_is_chosen_for_a_chest_radiograph(header: Header) -> None:
    assert choose_card(find_cards(SHIPPED_MODELS), header(modality="CR", body_part="CHEST")) is None
