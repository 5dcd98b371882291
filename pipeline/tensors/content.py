"""What every backend keeps of a tensor: its bytes, and whose they are."""

import hashlib
import math
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args
from uuid import UUID, uuid4

import numpy as np

from pipeline.errors import IdentityMismatch
from pipeline.tensors.store import AnyArray
from schemas.tensor import TensorDtype, TensorHandle

_DTYPES = frozenset(get_args(TensorDtype))


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose tensor it is, as the store wrote it down beside the bytes."""

    case_id: UUID
    generation: int
    length_bytes: int
    digest: str
    """SHA-256 of the C-ordered bytes."""


def contiguous(values: AnyArray) -> AnyArray:
    """Give the values in C order and native byte order; copied only where they are not.

    Raises
    ------
    ValueError
        A handle cannot name such an array: no axis, or a type that is not in `TensorDtype`.
    """
    if values.ndim == 0 or values.dtype.name not in _DTYPES:
        raise ValueError(f"not a tensor: {values.ndim} axes of {values.dtype.name}")
    return np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))


def handle_for(
    values: AnyArray, *, store: Literal["shared_memory", "memory"], case_id: UUID, generation: int, expires_at: datetime
) -> TensorHandle:
    """Name a new tensor; `values` as `contiguous` gives them."""
    return TensorHandle.model_validate(
        {
            "store": store,
            "key": uuid4().hex,
            "shape": values.shape,
            "dtype": values.dtype.name,
            "digest": hashlib.sha256(values.data).hexdigest(),
            "case_id": case_id,
            "generation": generation,
            "expires_at": expires_at,
        }
    )


def length_bytes(handle: TensorHandle) -> int:
    """How many bytes the handle's shape and type take."""
    return math.prod(handle.shape) * np.dtype(handle.dtype).itemsize


def named_owner(handle: TensorHandle) -> Owner:
    """What the store must have written down beside the bytes, if they are those that the handle names."""
    return Owner(handle.case_id, handle.generation, length_bytes(handle), handle.digest)


def view(content: memoryview, handle: TensorHandle) -> AnyArray:
    """Look at the bytes as the handle names them: read-only, no copy."""
    values: AnyArray = np.ndarray(handle.shape, dtype=handle.dtype, buffer=content)
    values.flags.writeable = False
    return values


def require_identity(handle: TensorHandle, *, case_id: UUID, owner: Owner, content: memoryview) -> None:
    """Compare what lies in the store with the handle, and the handle with the case that asks.

    Raises
    ------
    IdentityMismatch
        One of them differs; its fact `differs` says which.
    """
    differs = _first_difference(handle, case_id=case_id, owner=owner, content=content)
    if differs is not None:
        raise IdentityMismatch("a stored tensor is not the one that its handle names", case_id=case_id, key=handle.key, differs=differs)


def _first_difference(handle: TensorHandle, *, case_id: UUID, owner: Owner, content: memoryview) -> str | None:
    if not case_id == handle.case_id == owner.case_id:
        return "case_id"
    if handle.generation != owner.generation:
        return "generation"
    if not length_bytes(handle) == owner.length_bytes == content.nbytes:
        return "length"
    # The stored digest first: it tells a wrong handle from altered bytes without reading them.
    if handle.digest != owner.digest or hashlib.sha256(content).hexdigest() != handle.digest:
        return "digest"
    return None
