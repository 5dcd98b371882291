"""Whose time a forward pass is."""

import time

import pytest
import torch
from torch import Tensor, nn

from pipeline.inference.profiling.layers import BETWEEN, layer_costs
from pipeline.inference.profiling.sweep import knee
from tests.unit.inference.profiling.made_up import batch_of


class Sleeper(nn.Module):
    """A layer that takes so long and no CPU."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def forward(self, display: Tensor) -> Tensor:
        time.sleep(self.seconds)
        return display


class Slow(nn.Module):
    """A long layer, a short one that is used twice, and a while between them."""

    def __init__(self) -> None:
        super().__init__()
        self.long = Sleeper(0.02)
        self.parts = nn.Sequential(nn.Identity(), Sleeper(0.004))

    def forward(self, display: Tensor) -> Tensor:
        time.sleep(0.003)
        shown: Tensor = self.parts(self.parts(self.long(display)))
        return shown


def test_each_layer_has_its_own_time_and_the_rest_is_between_them() -> None:
    whole_s, layers = layer_costs(Slow(), torch.zeros(1), {"": 0}, runs=5)

    assert [layer.name for layer in layers] == ["long", "parts.1", BETWEEN]
    # A sleep is never shorter than asked.
    assert layers[0].median_s >= 0.02
    assert layers[1].median_s >= 0.008
    assert layers[2].median_s >= 0.003
    assert whole_s >= 0.031
    assert sum(layer.share for layer in layers) == pytest.approx(1.0, abs=0.2)


def test_the_network_is_not_watched_any_more_afterwards() -> None:
    network = Slow()
    layer_costs(network, torch.zeros(1), {"": 0}, runs=2)

    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in network.modules())


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [
        # One image as fast as sixteen: batches gain nothing.
        ({1: 0.01, 2: 0.02, 4: 0.04}, 1),
        # A fixed cost and nothing an image: the largest batch is the best by far.
        ({1: 1.0, 4: 1.0, 16: 1.0}, 16),
        # 1, 1.9, 3.5, 3.8 and 3.6 images a second: nine tenths of 3.8 are reached with four.
        ({1: 1.0, 2: 2 / 1.9, 4: 4 / 3.5, 8: 8 / 3.8, 16: 16 / 3.6}, 4),
    ],
)
def test_the_knee_is_where_nine_tenths_of_the_speed_are_reached(seconds: dict[int, float], wanted: int) -> None:
    assert knee([batch_of(images, median_s) for images, median_s in seconds.items()]) == wanted
