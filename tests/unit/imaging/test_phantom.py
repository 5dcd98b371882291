import numpy as np
import pytest
from scipy.ndimage import binary_erosion, label

from pipeline.imaging.phantom import phantom


def test_the_same_seed_gives_the_same_image_and_another_seed_another() -> None:
    first, again, other = (phantom(seed)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_lesion_is_one_dark_region(seed: int) -> None:
    image, mask = phantom(seed)
    assert label(mask)[1] == 1
    assert image[mask].mean() < image[~mask].mean() - 30


def test_an_image_without_a_lesion_has_an_empty_mask() -> None:
    image, mask = phantom(4, has_lesion=False, rows_px=420, columns_px=300)
    assert not mask.any()
    assert image.shape == mask.shape == (420, 300)


def edge_px(mask: np.ndarray) -> int:
    return int((mask & ~binary_erosion(mask)).sum())


def test_irregularity_makes_the_edge_longer() -> None:
    smooth, spiky = (phantom(5, irregularity=irregularity)[1] for irregularity in (0.0, 0.3))
    assert edge_px(spiky) / np.sqrt(spiky.sum()) > 1.2 * edge_px(smooth) / np.sqrt(smooth.sum())
