from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from pipeline.inference.card import BadModelFolder, load_card
from pipeline.inference.networks import build_network
from pipeline.inference.networks.fusion import fold_norms
from pipeline.inference.networks.lesion_unet import LesionUNet
from pipeline.inference.weights import read_weights
from schemas.model_card import ModelCard


def test_the_shipped_network_has_the_stated_number_of_weights(shipped: Path) -> None:
    card = load_card(shipped)
    network = build_network(card, read_weights(shipped, card))
    assert sum(values.numel() for values in network.parameters()) == 618_594


def test_the_outline_has_the_side_of_the_input_and_each_image_its_scores() -> None:
    network = LesionUNet(widths=(4, 8, 12, 16), scores=3).eval()
    outline, scores = network(torch.zeros(2, 1, 96, 64))
    assert outline.shape == (2, 1, 96, 64)
    assert scores.shape == (2, 3)


def test_folding_the_norms_leaves_the_function_and_no_norm(shipped: Path) -> None:
    card = load_card(shipped)
    plain = build_network(card, read_weights(shipped, card))
    folded = fold_norms(build_network(card, read_weights(shipped, card)))
    display = torch.rand(1, 1, 256, 256, generator=torch.Generator().manual_seed(0))
    for before, after in zip(plain(display), folded(display), strict=True):
        torch.testing.assert_close(torch.sigmoid(after), torch.sigmoid(before), rtol=0, atol=1e-5)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded.modules())


def test_a_missing_weight_is_refused(small: tuple[Path, ModelCard]) -> None:
    folder, card = small
    weights = load_file(folder / card.weights)
    del weights["outline.0.bias"]
    with pytest.raises(BadModelFolder, match=r"weights\.safetensors does not fit network lesion-unet"):
        build_network(card, weights)


def test_a_weight_too_many_is_refused(small: tuple[Path, ModelCard]) -> None:
    folder, card = small
    weights = load_file(folder / card.weights) | {"backdoor.weight": torch.zeros(1)}
    with pytest.raises(BadModelFolder, match="does not fit network"):
        build_network(card, weights)


@pytest.mark.parametrize(
    ("different", "field"),
    [
        ({"network": "resnet"}, "network: resnet is none of lesion-unet"),
        ({"network_arguments": {"depth": 3}}, "network_arguments"),
        ({"network_arguments": {"widths": (4, 4)}}, "network_arguments"),
        ({"network_arguments": {"widths": 4}}, "network_arguments"),
        ({"network_arguments": {"widths": (8, 8, 8, 8)}}, "weights"),
    ],
)
def test_a_card_that_does_not_describe_the_network_is_refused(
    small: tuple[Path, ModelCard], different: dict[str, object], field: str
) -> None:
    folder, card = small
    with pytest.raises(BadModelFolder, match=field):
        build_network(card.model_copy(update=different), load_file(folder / card.weights))


def test_a_side_that_the_network_cannot_halve_is_refused(small: tuple[Path, ModelCard]) -> None:
    folder, card = small
    odd = card.model_copy(update={"input": card.input.model_copy(update={"side_px": 40})})
    with pytest.raises(BadModelFolder, match=r"input\.side_px: must be a multiple of 32"):
        build_network(odd, load_file(folder / card.weights))
