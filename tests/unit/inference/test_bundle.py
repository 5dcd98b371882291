"""A folder as MONAI writes it, completed by the card of a small model."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.inference.bundle import card_fields
from pipeline.inference.card import BadModelFolder, load_card
from schemas.model_card import ModelCard

# The fields of MONAI's own specification and example bundles.
METADATA: dict[str, Any] = {
    "schema": "https://github.com/Project-MONAI/MONAI-extra-test-data/releases/download/0.8.1/meta_schema_20240725.json",
    "name": "Breast Ultrasound Lesions",
    "version": "0.4.2",
    "task": "Outline of lesions in breast ultrasound",
    "description": "A network for breast ultrasound.",
    "authors": "A hospital",
    "copyright": "Copyright (c) A hospital",
    "data_source": "Twelve hundred images of one hospital",
    "intended_use": "Research only",
    "references": ["A paper, 2024"],
    "eval_metrics": {"mean_dice": 0.87},
    "network_data_format": {
        "inputs": {
            "image": {
                "type": "image",
                "format": "magnitude",
                "modality": "US",
                "num_channels": 1,
                "spatial_shape": [64, 64],
                "dtype": "float32",
                "value_range": [0, 1],
                "is_patch_data": False,
                "channel_def": {"0": "image"},
            }
        },
        "outputs": {},
    },
}
OWN = ("device_uid", "weights_sha256", "scores", "limits")


def test_what_the_metadata_states_becomes_the_cards() -> None:
    assert card_fields(METADATA) == {
        "name": "breast-ultrasound-lesions",
        "version": "0.4.2",
        "title": "Outline of lesions in breast ultrasound",
        "manufacturer": "A hospital",
        "intended_use": "Research only",
        "licence": "Copyright (c) A hospital",
        "data": "Twelve hundred images of one hospital A paper, 2024",
        "weights": "models/model.ts",
        "input": {"side_px": 64, "channels": 1, "scale": pytest.approx(1 / 255)},
        "figures": {"mean_dice": 0.87},
    }


@pytest.mark.parametrize(
    ("image", "stated"),
    [
        ({"spatial_shape": ["*", "*"], "num_channels": 1}, {"channels": 1}),
        ({"spatial_shape": [64, 32], "value_range": [0, 255]}, {"scale": 1.0}),
        ({"spatial_shape": [96, 96, 96]}, None),
        ("nonsense", None),
    ],
)
def test_what_no_letterbox_can_be_made_for_is_left_to_the_card(image: Any, stated: dict[str, Any] | None) -> None:
    assert card_fields({"network_data_format": {"inputs": {"image": image}}}).get("input") == stated


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    folder = tmp_path / "bundle"
    (folder / "configs").mkdir(parents=True)
    (folder / "configs" / "metadata.json").write_text(json.dumps(METADATA), encoding="utf-8")
    return folder


def completing(card: ModelCard) -> str:
    """What a `card.toml` beside the metadata must still say."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in card.model_dump(mode="json").items() if name in OWN]
    lines += ['title = "By the card"', "[input]", 'window = "percentile"']
    for table in ("applicability", "thresholds"):
        lines += [f"[{table}]", *(f"{name} = {json.dumps(value)}" for name, value in getattr(card, table).model_dump(mode="json").items())]
    codes = card.codes.model_dump(mode="json")
    lines += ["[codes]", f"source = {json.dumps(codes.pop('source'))}"]
    for name, concept in codes.items():
        lines += [f"[codes.{name}]", *(f"{part} = {json.dumps(value)}" for part, value in concept.items())]
    return "\n".join(lines) + "\n"


def test_a_bundle_alone_is_refused_and_every_missing_field_named(bundle: Path) -> None:
    with pytest.raises(BadModelFolder) as refused:
        load_card(bundle)
    said = str(refused.value)
    assert "card.toml and metadata.json" in said
    for field in ("device_uid", "weights_sha256", "applicability", "scores", "thresholds", "codes", "limits"):
        assert f"{field}: nobody states it" in said
    assert "title" not in said


def test_a_card_beside_it_completes_and_corrects_it(bundle: Path, small: tuple[Path, ModelCard]) -> None:
    (bundle / "card.toml").write_text(completing(small[1]), encoding="utf-8")
    card = load_card(bundle)
    assert card.reference == "breast-ultrasound-lesions:0.4.2"
    assert (card.title, card.weights, card.network) == ("By the card", "models/model.ts", None)
    assert (card.input.side_px, card.input.window) == (64, "percentile")
    assert card.thresholds == small[1].thresholds


def test_metadata_that_is_no_json_is_refused_by_name(bundle: Path) -> None:
    (bundle / "configs" / "metadata.json").write_text("{", encoding="utf-8")
    with pytest.raises(BadModelFolder, match=r"bundle/metadata\.json: not valid JSON"):
        load_card(bundle)
