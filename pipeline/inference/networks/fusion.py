"""Batch norms folded into the convolutions before them: the same function with fewer passes over memory."""

from itertools import pairwise

from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval


def fold_norms(network: nn.Module) -> nn.Module:
    """Fold each batch norm of a network in eval mode into its convolution, in place; outputs move by rounding alone."""
    for module in list(network.modules()):
        if isinstance(module, nn.Sequential):
            _fold_within(module)
    return network


def _fold_within(steps: nn.Sequential) -> None:
    for (index, step), (next_index, next_step) in pairwise(list(enumerate(steps))):
        if isinstance(step, nn.Conv2d) and isinstance(next_step, nn.BatchNorm2d):
            steps[index] = fuse_conv_bn_eval(step, next_step)
            steps[next_index] = nn.Identity()
