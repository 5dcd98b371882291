"""The cap that a device's memory sets: by counting on fingers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.batching.memory_cap import CLEAN_FULL_BATCHES, MemoryCap

WARMED = (1, 2, 4, 8, 16)


def test_it_begins_with_the_largest_size_that_was_warmed() -> None:
    assert MemoryCap.from_sweep(WARMED).images == 16
    assert MemoryCap.from_sweep((8, 4, 2, 1)).images == 8


def test_nine_that_do_not_fit_where_eight_just_did_leave_eight() -> None:
    cap = MemoryCap.from_sweep(WARMED)
    cap.overflowed(9)
    assert cap.images == 8


@pytest.mark.parametrize(("images", "left"), [(16, 8), (9, 4), (2, 1), (1, 1)])
def test_where_nothing_is_known_the_cap_is_half_of_what_did_not_fit(images: int, left: int) -> None:
    cap = MemoryCap(16)
    cap.overflowed(images)
    assert cap.images == left


def test_what_fitted_before_the_memory_was_taken_proves_nothing_after() -> None:
    cap = MemoryCap.from_sweep(WARMED)
    cap.overflowed(16)
    cap.overflowed(8)
    assert cap.images == 4


def test_a_case_that_is_larger_than_the_cap_and_does_not_fit_does_not_raise_it() -> None:
    cap = MemoryCap(4)
    cap.overflowed(16)
    assert cap.images == 4


def test_the_halves_that_ran_are_known_to_fit() -> None:
    cap = MemoryCap(16)
    cap.overflowed(11)
    cap.ran(5)
    cap.ran(6)
    assert cap.images == 6


def test_twenty_clean_full_batches_give_one_image_back_and_part_filled_ones_none() -> None:
    cap = MemoryCap(8)
    for _ in range(CLEAN_FULL_BATCHES - 1):
        cap.ran(8)
        cap.ran(7)
    assert cap.images == 8
    cap.ran(8)
    assert cap.images == 9


def test_one_that_does_not_fit_begins_the_count_anew() -> None:
    cap = MemoryCap(8)
    for _ in range(CLEAN_FULL_BATCHES - 1):
        cap.ran(8)
    cap.overflowed(8)
    for _ in range(CLEAN_FULL_BATCHES - 1):
        cap.ran(cap.images)
    assert cap.images == 4


@given(room=st.integers(1, 16), ceiling=st.integers(1, 16))
def test_a_device_of_any_size_is_found_with_few_failures_and_full_again_when_it_is_free(room: int, ceiling: int) -> None:
    """given a device that holds `room` images, then at most five batches fail at first and one in twenty later; freed, none does"""
    cap, failures = MemoryCap.from_sweep(WARMED), 0
    for _ in range(400):
        images = min(ceiling, cap.images)
        if images > room:
            cap.overflowed(images)
            failures += 1
        else:
            cap.ran(images)
    assert cap.images >= min(room, ceiling)
    assert failures <= 5 + 400 / CLEAN_FULL_BATCHES
    for _ in range(CLEAN_FULL_BATCHES * 16):
        cap.ran(min(ceiling, cap.images))
    assert cap.images >= ceiling
