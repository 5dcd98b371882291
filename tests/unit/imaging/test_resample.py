"""Resampling, held against Pillow's."""

import numpy as np
import pytest
from PIL import Image

from pipeline.imaging.resample import resample


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ((256, 205), (400, 320)),
        ((480, 480), (512, 512)),
        ((97, 60), (97, 60)),
        ((480, 300), (97, 61)),
        ((1, 256), (3, 900)),
        ((256, 1), (1, 1)),
    ],
)
def test_an_image_is_resampled_as_pillow_does_it(source: tuple[int, int], target: tuple[int, int]) -> None:
    values = np.random.default_rng(8).integers(0, 256, source).astype(np.uint8)
    oracle = Image.fromarray(values.astype(np.float32)).resize(target[::-1], Image.Resampling.BILINEAR)

    resampled = resample(values, *target)

    assert resampled.shape == target
    assert resampled.dtype == np.float32
    np.testing.assert_allclose(resampled, np.asarray(oracle), atol=1e-3)


def test_the_unit_becomes_one() -> None:
    certain = np.full((7, 5), 255, np.uint8)

    np.testing.assert_allclose(resample(certain, 31, 32, unit=255), 1.0, atol=1e-6)


def test_an_image_of_the_same_size_keeps_its_values() -> None:
    values = np.random.default_rng(9).integers(0, 256, (33, 44)).astype(np.uint8)

    np.testing.assert_array_equal(resample(values, 33, 44), values)
