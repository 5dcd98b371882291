"""What every tensor store promises, whoever implements it."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from hashlib import sha256
from uuid import UUID

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.errors import IdentityMismatch, TensorMissing, TensorStoreFull
from pipeline.tensors.store import AnyArray, TensorStore
from schemas.tensor import TensorHandle

CASE = UUID("01970000-0000-7000-8000-000000000001")
OTHER_CASE = UUID("01970000-0000-7000-8000-000000000002")
DTYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "float16", "float32"]
IMAGE = np.arange(2 * 3 * 5, dtype=np.int16).reshape(2, 3, 5)
MEBIBYTE = 1024 * 1024

MakeStore = Callable[[int], TensorStore]


@pytest.fixture
def store(make_tensor_store: MakeStore) -> TensorStore:
    return make_tensor_store(64 * MEBIBYTE)


@pytest.fixture
def put(store: TensorStore, noon: datetime) -> Callable[[AnyArray], TensorHandle]:
    return lambda values: store.put(values, case_id=CASE, generation=1, expires_at=noon + timedelta(minutes=10))


Put = Callable[[AnyArray], TensorHandle]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (7,), (3, 5), (2, 1, 64, 65), (0,), (4, 0, 3)])
def test_a_tensor_comes_back_with_its_values_shape_and_type(store: TensorStore, put: Put, dtype: str, shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape)).astype(dtype).reshape(shape)

    back = store.get(put(values), case_id=CASE)

    np.testing.assert_array_equal(back, values)
    assert (back.shape, back.dtype) == (values.shape, values.dtype)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=arrays.arrays(st.sampled_from(DTYPES), arrays.array_shapes(max_dims=5, max_side=6)))
def test_every_bit_of_any_array_comes_back(store: TensorStore, put: Put, values: AnyArray) -> None:
    handle = put(values)

    assert store.get(handle, case_id=CASE).tobytes() == values.tobytes()
    assert handle.digest == sha256(values.tobytes()).hexdigest()

    store.free(handle)


def test_a_handle_says_all_that_the_reader_must_know(store: TensorStore, noon: datetime) -> None:
    handle = store.put(IMAGE, case_id=CASE, generation=3, expires_at=noon)

    assert (handle.shape, handle.dtype, handle.case_id, handle.generation, handle.expires_at) == ((2, 3, 5), "int16", CASE, 3, noon)
    assert TensorHandle.model_validate_json(handle.model_dump_json()) == handle


@pytest.mark.parametrize("values", [IMAGE.transpose(), IMAGE[:, ::2], np.asfortranarray(IMAGE[0]), IMAGE.astype(">i2")])
def test_the_layout_in_memory_does_not_matter(store: TensorStore, put: Put, values: AnyArray) -> None:
    back = store.get(put(values), case_id=CASE)

    np.testing.assert_array_equal(back, values)
    assert back.flags.c_contiguous
    assert back.dtype == np.int16


@pytest.mark.parametrize("values", [np.array([1.0]), np.array(["a"]), np.array(1, dtype=np.uint8), np.array([None])])
def test_what_no_handle_can_name_is_refused(store: TensorStore, put: Put, values: AnyArray) -> None:
    with pytest.raises(ValueError, match="not a tensor"):
        put(values)

    assert store.used_bytes() == 0


def test_a_read_tensor_cannot_be_written(store: TensorStore, put: Put) -> None:
    back = store.get(put(IMAGE), case_id=CASE)

    with pytest.raises(ValueError, match="read-only"):
        back[0, 0, 0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        back.flags.writeable = True


def test_put_copies_so_the_caller_may_reuse_the_array(store: TensorStore, put: Put) -> None:
    values = np.ones((4, 4), dtype=np.uint8)
    handle = put(values)

    values[:] = 9

    assert store.get(handle, case_id=CASE).max() == 1


def test_a_redelivered_message_still_finds_its_tensor(store: TensorStore, put: Put) -> None:
    handle = put(IMAGE)

    first = store.get(handle, case_id=CASE)
    second = store.get(handle, case_id=CASE)

    np.testing.assert_array_equal(first, second)


def test_another_case_does_not_get_the_tensor(store: TensorStore, put: Put) -> None:
    handle = put(IMAGE)

    with pytest.raises(IdentityMismatch) as refused:
        store.get(handle, case_id=OTHER_CASE)

    assert refused.value.facts["differs"] == "case_id"


@pytest.mark.parametrize(
    ("changed", "differs"),
    [
        ({"case_id": OTHER_CASE}, "case_id"),
        ({"generation": 2}, "generation"),
        ({"digest": "0" * 64}, "digest"),
        ({"shape": (2, 3, 4)}, "length"),
        ({"shape": (2, 3, 6)}, "length"),
        ({"dtype": "float32"}, "length"),
    ],
)
def test_a_handle_that_names_something_else_is_refused(store: TensorStore, put: Put, changed: dict[str, object], differs: str) -> None:
    handle = put(IMAGE).model_copy(update=changed)

    with pytest.raises(IdentityMismatch) as refused:
        store.get(handle, case_id=handle.case_id)

    assert refused.value.facts["differs"] == differs


def test_a_handle_pointed_at_another_tensor_of_the_same_case_is_refused(store: TensorStore, put: Put) -> None:
    mine, other = put(IMAGE), put(IMAGE + 1)

    with pytest.raises(IdentityMismatch):
        store.get(mine.model_copy(update={"key": other.key}), case_id=CASE)


def test_a_freed_tensor_is_missing(store: TensorStore, put: Put) -> None:
    handle = put(IMAGE)

    store.free(handle)

    with pytest.raises(TensorMissing):
        store.get(handle, case_id=CASE)
    assert store.used_bytes() == 0


def test_freeing_twice_is_fine_and_frees_nothing_else(store: TensorStore, put: Put) -> None:
    handle, other = put(IMAGE), put(IMAGE)

    store.free(handle)
    store.free(handle)

    np.testing.assert_array_equal(store.get(other, case_id=CASE), IMAGE)


@pytest.mark.parametrize("changed", [{"case_id": OTHER_CASE}, {"generation": 0}, {"digest": "0" * 64}, {"shape": (2, 3, 4)}])
def test_a_handle_that_is_not_the_tensors_own_does_not_free_it(store: TensorStore, put: Put, changed: dict[str, object]) -> None:
    handle = put(IMAGE)

    store.free(handle.model_copy(update=changed))

    np.testing.assert_array_equal(store.get(handle, case_id=CASE), IMAGE)


def test_a_handle_pointed_at_another_tensor_frees_neither(store: TensorStore, put: Put) -> None:
    mine, other = put(IMAGE), put(IMAGE + 1)

    store.free(mine.model_copy(update={"key": other.key}))

    np.testing.assert_array_equal(store.get(mine, case_id=CASE), IMAGE)
    np.testing.assert_array_equal(store.get(other, case_id=CASE), IMAGE + 1)


def test_who_reads_keeps_its_view_when_the_tensor_is_freed(store: TensorStore, put: Put) -> None:
    handle = put(IMAGE)
    view = store.get(handle, case_id=CASE)

    store.free(handle)

    np.testing.assert_array_equal(view, IMAGE)


def test_reclaim_drops_the_expired_and_keeps_the_living(store: TensorStore, noon: datetime) -> None:
    moment = timedelta(microseconds=1)
    expired = store.put(IMAGE, case_id=CASE, generation=1, expires_at=noon)
    living = store.put(IMAGE, case_id=CASE, generation=1, expires_at=noon + moment)

    early, due, again = store.reclaim(now=noon - moment), store.reclaim(now=noon), store.reclaim(now=noon)

    assert (early, due, again) == (0, 1, 0)
    np.testing.assert_array_equal(store.get(living, case_id=CASE), IMAGE)
    with pytest.raises(TensorMissing):
        store.get(expired, case_id=CASE)


def test_a_full_store_refuses_and_keeps_the_others(make_tensor_store: MakeStore, noon: datetime) -> None:
    store = make_tensor_store(MEBIBYTE)
    half = np.full((600, 1024), 7, dtype=np.uint8)
    kept = store.put(half, case_id=CASE, generation=1, expires_at=noon)
    used_bytes = store.used_bytes()

    with pytest.raises(TensorStoreFull):
        store.put(half, case_id=OTHER_CASE, generation=1, expires_at=noon)

    np.testing.assert_array_equal(store.get(kept, case_id=CASE), half)
    assert store.used_bytes() == used_bytes


def test_freeing_makes_room_at_once(make_tensor_store: MakeStore, noon: datetime) -> None:
    store = make_tensor_store(MEBIBYTE)
    half = np.full((600, 1024), 7, dtype=np.uint8)
    store.free(store.put(half, case_id=CASE, generation=1, expires_at=noon))

    handle = store.put(half, case_id=OTHER_CASE, generation=1, expires_at=noon)

    np.testing.assert_array_equal(store.get(handle, case_id=OTHER_CASE), half)


def test_threads_together_do_not_pass_the_limit(make_tensor_store: MakeStore, noon: datetime) -> None:
    store = make_tensor_store(10 * 70_000)
    values = np.zeros(65_536, dtype=np.uint8)

    def try_to_put(number: int) -> bool:
        try:
            store.put(values, case_id=CASE, generation=number, expires_at=noon)
        except TensorStoreFull:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        kept_count = sum(pool.map(try_to_put, range(40)))

    assert kept_count == 10
    assert 10 * 65_536 <= store.used_bytes() <= 10 * 70_000
