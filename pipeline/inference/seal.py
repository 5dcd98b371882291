"""One number a row of a batch that binds what the network was shown to what it answered.

Computed where the batch lies while the network runs, and once more from the case's own tensor and the rows that are about
to be kept under its name. A row that was shifted, exchanged or overtaken anywhere in between gives another number. What a
network does with the order of its rows inside a forward pass cannot be seen by this.

A weighted sum of 64-bit words modulo 2^64. The weights are odd, so that every change of one word shows; each word has its
own, so that an exchange shows but for one chance in about 2^63. It guards against our mistakes, not against an attacker:
against those the store's SHA-256 stands.
"""

from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import pad

from pipeline.inference.transfer import UInt8Array

Seals = npt.NDArray[np.int64]

_WORD_BYTES: Final = 8
_SHOWN, _OUTLINED, _SCORED = 1, 2, 3


def seal_on_device(shown: Tensor, probability: Tensor, scores: Tensor) -> Tensor:
    """Seal each row of a batch on its device.

    Parameters
    ----------
    shown
        (image, channel, row, column) uint8, as the network was given it.
    probability
        (image, row, column) uint8.
    scores
        (image, score) float32.

    Returns
    -------
    (image,) int64.
    """
    scored = scores.contiguous().view(torch.int32).to(torch.int64)
    return (
        _sum_on_device(_words_on_device(shown), _SHOWN)
        + _sum_on_device(_words_on_device(probability), _OUTLINED)
        + _sum_on_device(scored, _SCORED)
    )


def seals_of(shown: UInt8Array, probability: UInt8Array, scores: npt.NDArray[np.float32]) -> Seals:
    """Seal rows in this process's memory; same axes, same numbers as `seal_on_device`."""
    scored = np.ascontiguousarray(scores).view(np.int32).astype(np.int64)
    return _sum(_words(shown), _SHOWN) + _sum(_words(probability), _OUTLINED) + _sum(scored, _SCORED)


def _words(rows: UInt8Array) -> Seals:
    flat = np.ascontiguousarray(rows).reshape(len(rows), -1)
    missing = -flat.shape[1] % _WORD_BYTES
    return (np.pad(flat, ((0, 0), (0, missing))) if missing else flat).view(np.int64)


def _words_on_device(rows: Tensor) -> Tensor:
    flat = rows.flatten(1).contiguous()
    missing = -flat.shape[1] % _WORD_BYTES
    return (pad(flat, (0, missing)) if missing else flat).view(torch.int64)


def _sum(words: Seals, part: int) -> Seals:
    # Wraps round: numpy and torch count modulo 2^64.
    total: Seals = words @ _weights(part, words.shape[1])
    return total


def _sum_on_device(words: Tensor, part: int) -> Tensor:
    return (words * _weights_on(words.device, part, words.shape[1])).sum(1)


@cache
def _weights(part: int, count: int) -> Seals:
    limits = np.iinfo(np.int64)
    return np.random.default_rng((part, count)).integers(limits.min, limits.max, count, dtype=np.int64, endpoint=True) | 1


@cache
def _weights_on(device: torch.device, part: int, count: int) -> Tensor:
    return torch.from_numpy(_weights(part, count)).to(device)
