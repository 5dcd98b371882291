"""What binds a row's input to its answer; the oracle counts with Python's own integers."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from pipeline.inference.seal import Seals, seal_on_device, seals_of

AnyRows = npt.NDArray[Any]

CHANCE = np.random.default_rng(3)
SHOWN = CHANCE.integers(0, 256, (6, 1, 12, 12), dtype=np.uint8)
PROBABILITY = CHANCE.integers(0, 256, (6, 12, 12), dtype=np.uint8)
SCORES = CHANCE.random((6, 2), dtype=np.float32)


def on_device(shown: AnyRows, probability: AnyRows, scores: AnyRows) -> Seals:
    sealed: Seals = seal_on_device(torch.from_numpy(shown), torch.from_numpy(probability), torch.from_numpy(scores)).numpy()
    return sealed


@pytest.mark.parametrize("side_px", [1, 3, 5, 12, 32])
def test_device_and_host_agree_whatever_the_size(side_px: int) -> None:
    shown = CHANCE.integers(0, 256, (3, 1, side_px, side_px), dtype=np.uint8)
    probability = CHANCE.integers(0, 256, (3, side_px, side_px), dtype=np.uint8)

    np.testing.assert_array_equal(on_device(shown, probability, SCORES[:3]), seals_of(shown, probability, SCORES[:3]))


def test_the_layout_in_memory_does_not_matter() -> None:
    spread = np.asfortranarray(SHOWN)
    read_only = PROBABILITY.copy()
    read_only.flags.writeable = False

    np.testing.assert_array_equal(seals_of(spread, read_only, np.asfortranarray(SCORES)), seals_of(SHOWN, PROBABILITY, SCORES))


def test_a_rows_seal_does_not_depend_on_its_company() -> None:
    together = seals_of(SHOWN, PROBABILITY, SCORES)

    for row in range(len(SHOWN)):
        part = slice(row, row + 1)
        np.testing.assert_array_equal(seals_of(SHOWN[part], PROBABILITY[part], SCORES[part]), together[part])


def altered(rows: AnyRows, at_byte: int) -> AnyRows:
    """The rows with one bit of the third changed."""
    changed = rows.copy()
    changed[2].view(np.uint8).reshape(-1)[at_byte] ^= 1
    return changed


def test_every_single_change_shows() -> None:
    before = seals_of(SHOWN, PROBABILITY, SCORES)
    spoilt = [
        *(seals_of(altered(SHOWN, at), PROBABILITY, SCORES) for at in range(SHOWN[0].nbytes)),
        *(seals_of(SHOWN, altered(PROBABILITY, at), SCORES) for at in range(PROBABILITY[0].nbytes)),
        *(seals_of(SHOWN, PROBABILITY, altered(SCORES, at)) for at in range(SCORES[0].nbytes)),
    ]

    assert len(spoilt) == 144 + 144 + 8
    assert all(np.flatnonzero(after != before).tolist() == [2] for after in spoilt)


@pytest.mark.parametrize("moved", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
def test_rows_that_change_places_show_whichever_part_moves(moved: tuple[int, ...]) -> None:
    order = np.roll(np.arange(len(SHOWN)), 1)
    shown = SHOWN[order] if 0 in moved else SHOWN
    probability = PROBABILITY[order] if 1 in moved else PROBABILITY
    scores = SCORES[order] if 2 in moved else SCORES

    assert not (seals_of(shown, probability, scores) == seals_of(SHOWN, PROBABILITY, SCORES)).any()


def test_words_that_change_places_within_a_row_show() -> None:
    turned = np.ascontiguousarray(SHOWN.reshape(6, 18, 8)[:, ::-1]).reshape(SHOWN.shape)

    assert not (seals_of(turned, PROBABILITY, SCORES) == seals_of(SHOWN, PROBABILITY, SCORES)).any()


def test_input_and_answer_are_not_interchangeable() -> None:
    assert not (seals_of(PROBABILITY[:, None], SHOWN[:, 0], SCORES) == seals_of(SHOWN, PROBABILITY, SCORES)).any()


def test_the_sum_is_taken_modulo_two_to_the_64() -> None:
    """given one word a part, then the seal is a weighted sum that can be solved for its odd weights"""
    zeros = np.zeros((1, 1, 2, 4), dtype=np.uint8)
    empty, silent = np.zeros((1, 2, 4), dtype=np.uint8), np.zeros((1, 1), dtype=np.float32)
    one, most = zeros.copy(), np.full_like(zeros, 255)
    one.reshape(-1)[0] = 1

    weight = int(seals_of(one, empty, silent)[0])

    assert int(seals_of(zeros, empty, silent)[0]) == 0
    assert weight % 2 == 1
    assert int(seals_of(most, empty, silent)[0]) % 2**64 == weight * (2**64 - 1) % 2**64
