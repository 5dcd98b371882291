import numpy as np
import pytest

from pipeline.imaging.rescale import to_modality


@pytest.mark.parametrize(
    ("stored", "slope", "intercept", "expected"),
    [
        (np.array([[0, 1024], [4095, 24]], np.uint16), 1.0, -1024.0, [[-1024, 0], [3071, -1000]]),
        (np.array([[-32768, 32767]], np.int16), 1.0, 0.0, [[-32768, 32767]]),
        (np.array([[2, 3]], np.uint8), -0.5, 10.0, [[9, 8.5]]),
        (np.array([[4_000_000_000]], np.uint32), 1.0, -4_000_000_000.0, [[0]]),
    ],
)
def test_stored_values_become_modality_values_by_slope_and_intercept(
    stored: np.ndarray, slope: float, intercept: float, expected: list[list[float]]
) -> None:
    values = to_modality(stored, slope=slope, intercept=intercept)
    np.testing.assert_array_equal(values, np.array(expected, np.float32))
    assert values.dtype == np.float32
