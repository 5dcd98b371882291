"""What a batch costs: numpy's least squares, and arithmetic by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.batching.latency import LatencyModel

SIZES = (1, 2, 4, 8, 16)


@given(alpha_s=st.floats(0.5, 10), beta_s=st.floats(0.05, 1), noise=st.lists(st.floats(-0.02, 0.02), min_size=5, max_size=5))
def test_the_line_through_a_sweep_is_numpys(alpha_s: float, beta_s: float, noise: list[float]) -> None:
    sweep = {size: alpha_s + beta_s * size + off for size, off in zip(SIZES, noise, strict=True)}

    model = LatencyModel.from_sweep(sweep)

    slope, intercept = np.polyfit(list(sweep), list(sweep.values()), 1)
    assert [model.beta_s, model.alpha_s] == pytest.approx([slope, intercept])


def test_a_sweep_of_one_size_gives_the_line_through_it() -> None:
    model = LatencyModel.from_sweep({4: 2.0})

    assert [model.seconds(images) for images in (1, 4, 8)] == [0.5, 2.0, 4.0]


def test_a_sweep_that_falls_is_taken_as_flat() -> None:
    model = LatencyModel.from_sweep({1: 3.0, 16: 1.0})

    assert [model.seconds(images) for images in (1, 16)] == [2.0, 2.0]


def test_a_sweep_that_starts_below_zero_has_no_launch_cost() -> None:
    model = LatencyModel.from_sweep({1: 0.0, 2: 1.0, 3: 2.0})

    assert (model.alpha_s, model.beta_s) == (0.0, 1.0)


def test_a_device_twice_as_slow_is_followed_by_a_fifth_a_run() -> None:
    model = LatencyModel(alpha_s=1.0, beta_s=0.5)

    model.learn(2, 4.0)

    # Ratio 2 against level 1: the level gains 0.2, the spread goes from 0.1 to 0.1 + 0.2 (1 - 0.1).
    assert model.level == pytest.approx(1.2)
    assert model.spread == pytest.approx(0.28)
    assert model.seconds(2) == pytest.approx(2.4)


def test_a_device_that_does_as_predicted_becomes_certain() -> None:
    model = LatencyModel(alpha_s=1.0, beta_s=0.5)

    for _ in range(20):
        model.learn(4, 3.0)

    assert model.level == pytest.approx(1.0)
    assert model.spread == pytest.approx(0.1 * 0.8**20)


def test_a_throttled_device_is_seen_within_ten_batches() -> None:
    model = LatencyModel(alpha_s=7.3, beta_s=0.2)

    for _ in range(10):
        model.learn(16, 1.6 * (7.3 + 0.2 * 16))

    assert model.seconds(16) == pytest.approx(1.6 * 10.5, rel=0.05)


def test_a_model_that_knows_no_cost_learns_nothing() -> None:
    model = LatencyModel(alpha_s=0.0, beta_s=0.0)

    model.learn(4, 3.0)

    assert (model.level, model.spread) == (1.0, 0.1)


@given(runs=st.lists(st.tuples(st.integers(1, 16), st.floats(0, 100)), max_size=30))
def test_no_run_makes_a_prediction_negative(runs: list[tuple[int, float]]) -> None:
    model = LatencyModel(alpha_s=0.5, beta_s=0.1)

    for images, actual_s in runs:
        model.learn(images, actual_s)

    assert model.seconds(8) >= 0
    assert model.spread >= 0
