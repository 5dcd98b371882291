"""The in-memory double: one process, the same contract."""

from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from uuid import UUID

from pipeline.errors import TensorMissing, TensorStoreFull
from pipeline.tensors.content import Owner, contiguous, handle_for, named_owner, require_identity, view
from pipeline.tensors.store import AnyArray
from schemas.tensor import TensorHandle


@dataclass(frozen=True, slots=True)
class _Kept:
    content: bytes
    owner: Owner
    expires_at: datetime


class MemoryStore:
    """A tensor store for tests and for one process alone."""

    def __init__(self, *, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self._kept: dict[str, _Kept] = {}
        self._lock = Lock()

    def put(self, values: AnyArray, *, case_id: UUID, generation: int, expires_at: datetime) -> TensorHandle:
        """See `TensorStore.put`."""
        values = contiguous(values)
        handle = handle_for(values, store="memory", case_id=case_id, generation=generation, expires_at=expires_at)
        owner = Owner(case_id, generation, values.nbytes, handle.digest)
        with self._lock:
            used_bytes = sum(kept.owner.length_bytes for kept in self._kept.values())
            if used_bytes + values.nbytes > self._capacity_bytes:
                raise TensorStoreFull(wanted_bytes=values.nbytes, used_bytes=used_bytes, capacity_bytes=self._capacity_bytes)
            self._kept[handle.key] = _Kept(values.tobytes(), owner, expires_at)
        return handle

    def get(self, handle: TensorHandle, *, case_id: UUID) -> AnyArray:
        """See `TensorStore.get`."""
        kept = self._kept.get(handle.key)
        if kept is None:
            raise TensorMissing(case_id=case_id, key=handle.key)
        content = memoryview(kept.content)
        require_identity(handle, case_id=case_id, owner=kept.owner, content=content)
        return view(content, handle)

    def free(self, handle: TensorHandle) -> None:
        """See `TensorStore.free`."""
        with self._lock:
            kept = self._kept.get(handle.key)
            if kept is not None and kept.owner == named_owner(handle):
                del self._kept[handle.key]

    def reclaim(self, *, now: datetime) -> int:
        """See `TensorStore.reclaim`."""
        with self._lock:
            expired = [key for key, kept in self._kept.items() if kept.expires_at <= now]
            for key in expired:
                del self._kept[key]
        return len(expired)

    def used_bytes(self) -> int:
        """See `TensorStore.used_bytes`."""
        with self._lock:
            return sum(kept.owner.length_bytes for kept in self._kept.values())
