"""What is computed of a batch where it lies: widened, answered, narrowed and sealed, without a word to the host."""

from typing import Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import convert_conv2d_weight_memory_format

from pipeline.inference.failures import BadOutput
from pipeline.inference.seal import seal_on_device
from schemas.model_card import ModelCard, Precision

_NARROWED: Final = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class Answers(NamedTuple):
    """A batch's answers on its device, row by row."""

    probability: Tensor
    """(image, row, column) uint8, x 255."""
    scores: Tensor
    """(image, score) float32, 0 to 1."""
    is_sound: Tensor
    """(image,) bool: every value of the row is finite."""
    seals: Tensor
    """(image,) int64."""


class Forward:
    """A network between narrow bytes and narrow bytes, in one precision.

    Parameters
    ----------
    network
        (image, channel, row, column) float32 to outline logits (image, 1, row, column) and score logits (image, score); in eval
        mode.
    card
        Its scale and its promises about shapes.
    device
        Where the network goes.
    precision
        Of the network's convolutions and products; what goes in and what is made of the logits is float32 in any case.
    """

    def __init__(self, network: nn.Module, card: ModelCard, *, device: torch.device, precision: Precision) -> None:
        self._card, self._device, self._dtype = card, device, _NARROWED.get(precision)
        # Rows of channels side by side suit the vector units of a CPU (measured: 1.2 to 1.5 times as fast) and tensor cores.
        self.network = convert_conv2d_weight_memory_format(network.to(device), torch.channels_last)

    def __call__(self, shown: Tensor) -> Answers:
        """Answer (image, channel, row, column) uint8 on the device.

        Raises
        ------
        BadOutput
            The network's answer has a wrong shape.
        """
        display = shown.to(memory_format=torch.channels_last).to(torch.float32).mul_(self._card.input.scale)
        if self._dtype is None:
            outline, logits = self.network(display)
        else:
            with torch.autocast(self._device.type, dtype=self._dtype):
                outline, logits = self.network(display)
            outline, logits = outline.float(), logits.float()
        self._require_shapes(outline, logits, images=len(shown))
        is_sound = torch.isfinite(outline).flatten(1).all(1) & torch.isfinite(logits).all(1)
        probability, scores = outline[:, 0].sigmoid().mul_(255).round_().to(torch.uint8), logits.sigmoid()
        return Answers(probability, scores, is_sound, seal_on_device(shown, probability, scores))

    def _require_shapes(self, outline: Tensor, scores: Tensor, *, images: int) -> None:
        side_px = self._card.input.side_px
        if outline.shape != (images, 1, side_px, side_px) or scores.shape != (images, len(self._card.scores)):
            raise BadOutput(
                "the model's answer has a wrong shape",
                rows=tuple(range(images)),
                outline=tuple(outline.shape),
                scores=tuple(scores.shape),
            )
