"""Foretold operations against arithmetic by hand, and against a real run."""

from pathlib import Path

import torch
from torch import Tensor, nn

from pipeline.inference.card import load_card
from pipeline.inference.networks import build_network
from pipeline.inference.networks.fusion import fold_norms
from pipeline.inference.profiling.flops import count_flops, predict_flops
from pipeline.inference.weights import read_weights


class Small(nn.Module):
    """Two convolutions and a linear layer on 8 x 8 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, kernel_size=3, padding=1)
        self.body = nn.Sequential(nn.ReLU(), nn.Conv2d(4, 6, kernel_size=1, stride=2))
        self.score = nn.Linear(6, 2)

    def forward(self, display: Tensor) -> Tensor:
        scores: Tensor = self.score(self.body(self.first(display)).mean((2, 3)))
        return scores


class LooksAtValues(nn.Module):
    """A network whose way depends on what it sees."""

    def forward(self, display: Tensor) -> Tensor:
        return display * 2 if float(display.sum()) > 0 else display


# A multiplication with an addition counts as two; biases and activations do not count.
FIRST = 2 * (8 * 8) * 4 * (1 * 3 * 3)
SECOND = 2 * (4 * 4) * 6 * (4 * 1 * 1)
SCORE = 2 * 6 * 2


def test_foretold_operations_are_those_of_arithmetic_by_hand() -> None:
    found = predict_flops(Small(), (1, 1, 8, 8))

    assert found is not None
    assert (found["first"], found["body.1"], found["score"]) == (FIRST, SECOND, SCORE) == (4608, 768, 24)
    assert found[""] == 5400


def test_three_images_take_three_times_the_operations() -> None:
    found = predict_flops(Small(), (3, 1, 8, 8))

    assert found is not None
    assert found[""] == 3 * 5400


def test_foretelling_leaves_the_network_with_its_weights() -> None:
    network = Small()
    before = network.first.weight.clone()
    predict_flops(network, (1, 1, 8, 8))

    assert network.first.weight.device.type == "cpu"
    assert torch.equal(network.first.weight, before)


def test_a_network_that_looks_at_values_cannot_be_foretold() -> None:
    assert predict_flops(LooksAtValues(), (1, 1, 8, 8)) is None


def test_the_shipped_model_does_in_a_real_run_what_was_foretold(shipped: Path) -> None:
    card = load_card(shipped)
    network = fold_norms(build_network(card, read_weights(shipped, card)))
    shape = (1, 1, card.input.side_px, card.input.side_px)

    assert predict_flops(network, shape) == count_flops(network, torch.zeros(shape))
