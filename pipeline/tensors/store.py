"""The protocol of the tensor store. Both backends pass one contract suite (`tests/contract/`)."""

from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

import numpy.typing as npt

from schemas.tensor import TensorHandle

AnyArray = npt.NDArray[Any]


class TensorStore(Protocol):
    """Holds tensors between pools: bounded, idempotent, and checked at every read."""

    def put(self, values: AnyArray, *, case_id: UUID, generation: int, expires_at: datetime) -> TensorHandle:
        """Keep a C-ordered copy of `values` until it is freed or expires.

        Raises
        ------
        TensorStoreFull
            It would not fit. Nothing was kept.
        """
        ...

    def get(self, handle: TensorHandle, *, case_id: UUID) -> AnyArray:
        """Read a tensor, read-only, with the shape and type that the handle names.

        Raises
        ------
        TensorMissing
            It was freed or has expired.
        IdentityMismatch
            Its bytes, its case or its generation are not the handle's.
        """
        ...

    def free(self, handle: TensorHandle) -> None:
        """Let go of a tensor. Freeing twice is fine; where something else lies under the handle's key, it stays."""
        ...

    def reclaim(self, *, now: datetime) -> int:
        """Drop what has expired, whoever forgot it; return how many."""
        ...

    def used_bytes(self) -> int:
        """Bytes held now."""
        ...
