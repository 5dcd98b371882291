"""Every backend of every protocol, one suite."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.tensors.memory import MemoryStore
from pipeline.tensors.shared_memory import SharedMemoryStore
from pipeline.tensors.store import TensorStore

MakeStore = Callable[[int], TensorStore]


@pytest.fixture(params=["shared_memory", "memory"])
def make_tensor_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """Makes an empty store with so many bytes of room."""
    if request.param == "memory":
        return lambda capacity_bytes: MemoryStore(capacity_bytes=capacity_bytes)
    return lambda capacity_bytes: SharedMemoryStore(tmp_path / "tensors", capacity_bytes=capacity_bytes)
