"""What a batch costs: numpy's least squares, and arithmetic by hand."""

import random

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

    # Ratio 2 against level 1: the level gains 0.2. It deviates by the whole: 0.97 x 0.1^2 + 0.03 x 1^2.
    assert model.level == pytest.approx(1.2)
    assert model.spread == pytest.approx((0.97 * 0.01 + 0.03) ** 0.5)


def test_a_device_that_does_as_predicted_becomes_certain() -> None:
    model = LatencyModel(alpha_s=1.0, beta_s=0.5)

    for _ in range(20):
        model.learn(4, 3.0)

    assert model.level == pytest.approx(1.0)
    assert [model.alpha_s, model.beta_s] == pytest.approx([1.0, 0.5])
    assert model.spread == pytest.approx(0.1 * 0.97**10)


def test_the_lines_shape_is_numpys_least_squares_over_faded_runs_and_the_measured_line() -> None:
    model = LatencyModel(alpha_s=7.3, beta_s=0.2)
    dice, sizes, shapes = random.Random(5), [], []
    for _ in range(80):
        size = dice.randint(1, 16)
        seconds = (6.0 + 0.4 * size) * dice.uniform(0.9, 1.1)
        model.learn(size, seconds)
        sizes.append(size)
        shapes.append(seconds / model.level)

    weights = [0.98 ** (len(sizes) - 1 - place) for place in range(len(sizes))]
    slope, intercept = np.polyfit([1, 16, *sizes], [7.5, 10.5, *shapes], 1, w=np.sqrt([2.0, 2.0, *weights]))
    assert [model.beta_s, model.alpha_s] == pytest.approx([slope, intercept])
    assert model.seconds(16) == pytest.approx(6.0 + 0.4 * 16, rel=0.1)
    assert model.seconds(1) == pytest.approx(6.0 + 0.4, rel=0.1)


def test_runs_of_one_size_alone_leave_the_slope_where_it_was_measured() -> None:
    model = LatencyModel(alpha_s=7.3, beta_s=0.2)
    dice = random.Random(6)

    for _ in range(1000):
        model.learn(16, 10.5 * dice.uniform(0.8, 1.2))

    assert model.beta_s == pytest.approx(0.2, rel=0.2)
    assert model.seconds(1) == pytest.approx(7.5, rel=0.15)


def test_a_run_is_seldom_longer_than_its_prediction_and_seventeen_tenths_of_the_spread() -> None:
    model, dice = LatencyModel(alpha_s=7.3, beta_s=0.2), random.Random(7)
    longer = 0

    for _ in range(2000):
        seconds = 9.0 * dice.uniform(0.8, 1.2)
        longer += seconds > model.at_most_s(8, margin=1.7)
        model.learn(8, seconds)

    assert longer / 2000 < 0.08
    assert model.spread == pytest.approx(0.4 / 12**0.5, rel=0.3)


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

    assert 0 <= model.seconds(8) <= model.at_most_s(8, margin=1.7)
    assert 0 <= model.spread <= 1
