from io import BytesIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from pipeline.imaging.arrays import ByteImage
from pipeline.imaging.png import write_png

SHAPES = st.tuples(st.integers(1, 40), st.integers(1, 40))


@pytest.mark.parametrize("is_noisy", [True, False])
@given(image=SHAPES.flatmap(lambda shape: arrays(np.uint8, shape)))
def test_pillow_reads_the_grey_values_back(is_noisy: bool, image: ByteImage) -> None:
    read = Image.open(BytesIO(write_png(image, is_noisy=is_noisy)))
    assert read.mode == "L"
    np.testing.assert_array_equal(np.asarray(read), image)


def test_pillow_reads_the_colours_of_a_palette() -> None:
    palette = bytes(value for entry in range(256) for value in (entry, 255 - entry, 7))
    read = Image.open(BytesIO(write_png(np.array([[0, 200]], dtype=np.uint8), palette=palette))).convert("RGB")
    assert [read.getpixel((column, 0)) for column in range(2)] == [(0, 255, 7), (200, 55, 7)]


def test_a_flat_image_is_small() -> None:
    assert len(write_png(np.zeros((512, 512), dtype=np.uint8))) < 4_000
