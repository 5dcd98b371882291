"""A small residual U-Net that outlines a lesion and scores the image."""

from collections.abc import Mapping
from typing import ClassVar, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

GRID_PX: Final = 4
"""Pixels that one cell of the finest feature grid spans: folded into channels, so that no convolution runs at full size."""

STORED_NAMES: Final = {
    "e1": "encode_1",
    "e2": "encode_2",
    "e3": "encode_3",
    "e4": "encode_4",
    "r1": "narrow_1",
    "r2": "narrow_2",
    "r3": "narrow_3",
    "d1": "decode_1",
    "d2": "decode_2",
    "d3": "decode_3",
    "out": "outline",
    "cls": "score",
    "a": "first",
    "b": "second",
    "sk": "shortcut",
}
"""The short names of the training run, as its weights file holds them, and ours."""


def _conv_norm(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> list[nn.Module]:
    # The norm adds the bias; a convolution that feeds one needs none.
    return [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs)]


def _conv_norm_relu(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(*_conv_norm(inputs, outputs, kernel, stride), nn.ReLU(inplace=True))


def _doubled(features: Tensor) -> Tensor:
    return functional.interpolate(features, scale_factor=2, mode="nearest")


class Residual(nn.Module):
    """Two convolutions and a shortcut: (image, inputs, row, column) to (image, outputs, row / stride, column / stride)."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.first = _conv_norm_relu(inputs, outputs, 3, stride)
        self.second = nn.Sequential(*_conv_norm(outputs, outputs))
        is_same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if is_same else nn.Sequential(*_conv_norm(inputs, outputs, 1, stride))

    def forward(self, features: Tensor) -> Tensor:
        """Return rectified features, float32."""
        detail: Tensor = self.second(self.first(features))
        return functional.relu(detail + self.shortcut(features), inplace=True)


class LesionUNet(nn.Module):
    """A residual U-Net of four levels on a grid of four pixels a cell, with an outline head and a score head.

    Parameters
    ----------
    widths
        Channels of the four levels, finest first.
    scores
        How many scores the second head gives.

    References
    ----------
    Ronneberger, Fischer, Brox, "U-Net", MICCAI 2015; He et al., "Deep residual learning", CVPR 2016;
    Shi et al., "Real-time single image and video super-resolution ... sub-pixel convolution", CVPR 2016 (the folded grid).
    """

    side_multiple_px: ClassVar[int] = GRID_PX * 2**3
    """Three halvings of the grid: the input's side must divide by this."""

    def __init__(self, *, widths: tuple[int, int, int, int], scores: int) -> None:
        super().__init__()
        fine, medium, coarse, deep = widths
        self.stem = nn.Sequential(nn.PixelUnshuffle(GRID_PX), *_conv_norm_relu(GRID_PX**2, fine))
        self.encode_1 = Residual(fine, fine)
        self.encode_2 = Residual(fine, medium, 2)
        self.encode_3 = Residual(medium, coarse, 2)
        self.encode_4 = nn.Sequential(Residual(coarse, deep, 2), Residual(deep, deep))
        self.narrow_3 = _conv_norm_relu(deep, coarse, 1)
        self.narrow_2 = _conv_norm_relu(coarse, medium, 1)
        self.narrow_1 = _conv_norm_relu(medium, fine, 1)
        self.decode_3, self.decode_2, self.decode_1 = Residual(coarse, coarse), Residual(medium, medium), Residual(fine, fine)
        self.outline = nn.Sequential(nn.Conv2d(fine, GRID_PX**2, 3, 1, 1), nn.PixelShuffle(GRID_PX))
        self.score = nn.Sequential(nn.Linear(deep + coarse + medium, 48), nn.ReLU(), nn.Dropout(0.3), nn.Linear(48, scores))

    def forward(self, display: Tensor) -> tuple[Tensor, Tensor]:
        """Outline and score a batch.

        Parameters
        ----------
        display
            (image, 1, row, column), float32, display values 0 to 1; the side a multiple of `side_multiple_px`.

        Returns
        -------
        Outline logits (image, 1, row, column) and score logits (image, score), float32.
        """
        level_1 = self.encode_1(self.stem(display))
        level_2 = self.encode_2(level_1)
        level_3 = self.encode_3(level_2)
        level_4 = self.encode_4(level_3)
        up_3 = self.decode_3(_doubled(self.narrow_3(level_4)) + level_3)
        up_2 = self.decode_2(_doubled(self.narrow_2(up_3)) + level_2)
        up_1 = self.decode_1(_doubled(self.narrow_1(up_2)) + level_1)
        outline: Tensor = self.outline(up_1)
        # The scores look where the outline is; one is added so that an empty outline does not divide by nothing.
        attention = functional.adaptive_avg_pool2d(torch.sigmoid(outline), up_2.shape[-2:])
        inside = (up_2 * attention).sum((2, 3)) / (attention.sum((2, 3)) + 1.0)
        scores: Tensor = self.score(torch.cat([level_4.amax((2, 3)), up_3.mean((2, 3)), inside], 1))
        return outline, scores

    def load_stored(self, weights: Mapping[str, Tensor]) -> None:
        """Take weights under the names of the training run or under ours; every one must be there and none may be left over.

        Raises
        ------
        RuntimeError
            A name or a shape does not fit.
        """
        self.load_state_dict(
            {".".join(STORED_NAMES.get(part, part) for part in name.split(".")): values for name, values in weights.items()}
        )
