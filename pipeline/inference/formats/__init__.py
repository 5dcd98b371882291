"""The formats that a model's weights may have, and how each becomes a network. None of them is a pickle that Python opens."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from pipeline.inference.formats.exported import read_exported
from pipeline.inference.formats.scripted import read_scripted
from pipeline.inference.networks import build_network
from pipeline.inference.networks.fusion import fold_norms
from pipeline.inference.weights import WeightsRefused, read_weights, verified_bytes
from schemas.model_card import ModelCard

PARTS: Final = 2
"""What a network answers with: outline and scores."""


class WholeNetwork(nn.Module):
    """A network that came with its own graph, held to what the runner expects of ours.

    What such a graph raises (a guard on a size that it was not exported for, an answer of another form) becomes a
    RuntimeError, which the runner knows for a failed pass.
    """

    def __init__(self, graph: Callable[..., Any]) -> None:
        super().__init__()
        # A module is registered by this, so that it moves to the device with us.
        self.graph = graph

    def forward(self, display: Tensor) -> tuple[Tensor, Tensor]:
        """Outline logits (image, 1, row, column) and score logits (image, score), as the graph gives them."""
        try:
            answer = self.graph(display)
        except (AssertionError, IndexError, KeyError, TypeError, ValueError) as error:
            raise RuntimeError(f"the graph refused a batch of {len(display)}") from error
        if not isinstance(answer, tuple | list) or len(answer) != PARTS or not all(isinstance(part, Tensor) for part in answer):
            raise RuntimeError("the graph does not answer with outline and scores")
        outline, scores = answer
        return outline, scores


READERS: Final[Mapping[str, Callable[[bytes, str, torch.device], Callable[..., Any]]]] = {".pt2": read_exported, ".ts": read_scripted}
"""By the ending of the weights file: (content, place, device) to a callable graph."""


def load_network(folder: Path, card: ModelCard, *, device: torch.device) -> nn.Module:
    """Build the network of a model folder, digests first, ready to answer.

    Raises
    ------
    WeightsRefused
        The weights are missing, not those of the card, or not of the format that their name says.
    BadModelFolder
        The card and the weights do not describe the same network.
    """
    reader = READERS.get(Path(card.weights).suffix)
    if reader is None:
        return fold_norms(build_network(card, read_weights(folder, card)))
    content = verified_bytes(folder / card.weights, sha256=card.weights_sha256)
    place = f"{folder.name}/{card.weights}"
    try:
        graph = reader(content, place, device)
    except WeightsRefused:
        raise
    except Exception as error:  # the edge: torch raises anything on a file that is not what it seems
        raise WeightsRefused(
            f"{place}: torch cannot read it ({type(error).__name__})", file=place, fault="format", kind=type(error).__name__
        ) from error
    return WholeNetwork(graph)
