"""Which recorded size a batch is padded up to."""

import pytest

from pipeline.inference.graphs import padded_size
from pipeline.inference.runner import WARM_UP_SIZES


@pytest.mark.parametrize(("images", "size"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (8, 8), (9, 16), (15, 16), (16, 16), (17, None)])
def test_a_batch_is_padded_up_to_the_next_recorded_size_and_a_larger_one_not_at_all(images: int, size: int | None) -> None:
    assert padded_size(images, WARM_UP_SIZES) == size


def test_a_size_that_could_not_be_recorded_is_passed_over() -> None:
    assert padded_size(3, (1, 2, 8)) == 8
    assert padded_size(1, ()) is None
