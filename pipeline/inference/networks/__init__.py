"""The networks that a model card may name. Code is never loaded from a model folder."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from torch import Tensor, nn

from pipeline.inference.card import CARD_FILE, BadModelFolder
from pipeline.inference.networks.lesion_unet import LesionUNet
from schemas.model_card import ModelCard


class Network(Protocol):
    """What the runner needs of a network, beside being a module."""

    side_multiple_px: int

    def load_stored(self, weights: Mapping[str, Tensor]) -> None:
        """Take stored weights, strictly; RuntimeError where they do not fit."""
        ...


NETWORKS: Final[Mapping[str, Callable[..., Any]]] = {"lesion-unet": LesionUNet}
"""A card's `network` to its constructor, called with the card's `network_arguments` and the number of scores."""


def build_network(card: ModelCard, weights: Mapping[str, Tensor]) -> nn.Module:
    """Build the card's network with its weights, ready to answer.

    Raises
    ------
    BadModelFolder
        The network is unknown, its arguments do not fit, the weights are not its own, or it cannot take the card's side.
    """
    place = f"{card.reference} {CARD_FILE}"
    if card.network is None or card.network not in NETWORKS:
        raise BadModelFolder(f"{place}: network: {card.network} is none of {', '.join(NETWORKS)}", fields=("network",))
    try:
        network = NETWORKS[card.network](**card.network_arguments, scores=len(card.scores))
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadModelFolder(f"{place}: network_arguments: {error}", fields=("network_arguments",)) from error
    if card.input.side_px % network.side_multiple_px:
        raise BadModelFolder(f"{place}: input.side_px: must be a multiple of {network.side_multiple_px}", fields=("input.side_px",))
    try:
        network.load_stored(weights)
    except RuntimeError as error:
        raise BadModelFolder(f"{place}: weights: {card.weights} does not fit network {card.network}", fields=("weights",)) from error
    module: nn.Module = network.eval().requires_grad_(False)
    return module
