"""Floating-point operations of a network: foretold without data, and counted in a real run."""

import copy

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

Shape = tuple[int, int, int, int]
"""(image, channel, row, column)"""
LayerFlops = dict[str, int]
"""FLOPs by the layer's name; the whole network's under the empty name. A multiplication with an addition counts as two."""


def predict_flops(network: nn.Module, shape: Shape) -> LayerFlops | None:
    """Foretell what a forward pass takes, on tensors that have shapes and no data: nothing is computed, nothing allocated.

    The network itself is left alone. None where it cannot be run without data, such as one that looks at values to choose its way.
    """
    try:
        # A copy whose weights are on the device without memory: what is served stays where it is, and is not doubled.
        ghosts = {id(each): torch.empty_like(each, device="meta") for each in network.buffers()}
        ghosts |= {id(each): nn.Parameter(torch.empty_like(each, device="meta"), requires_grad=False) for each in network.parameters()}
        return count_flops(copy.deepcopy(network, ghosts), torch.empty(shape, device="meta"))
    except (RuntimeError, NotImplementedError, TypeError):
        return None


def count_flops(network: nn.Module, display: torch.Tensor) -> LayerFlops:
    """Count a real forward pass.

    Parameters
    ----------
    network
        In eval mode.
    display
        (image, channel, row, column), float32, on the network's device.
    """
    counter = FlopCounterMode(display=False)
    # Not inference mode, in which a scaled product of attention is one operation that the counter does not look into.
    with torch.no_grad(), counter:
        network(display)
    root = type(network).__name__
    found: LayerFlops = {"": counter.get_total_flops()}
    for place, operations in counter.get_flop_counts().items():
        if place.startswith(f"{root}."):
            found[place.removeprefix(f"{root}.")] = sum(operations.values())
    return found
