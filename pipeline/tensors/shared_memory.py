"""Tensors of one host: a file each in a folder of /dev/shm, written once, read by whoever has its handle.

Not `multiprocessing.shared_memory`: on Python 3.11 a reader that exits takes the segment with it. Here only
`free` and `reclaim` remove a file, and an open file outlives its name, so neither can pull it from under a reader.

A file is a header of 128 bytes (so that the values start on a cache line), then the C-ordered bytes. It gets
its name when it is whole: a torn one has a name that no handle can carry. Its modification time is the moment
it expires, so that reclaiming reads names and times alone.
"""

import errno
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from struct import Struct
from threading import Lock
from typing import Final
from uuid import UUID

from pipeline.errors import IdentityMismatch, TensorMissing, TensorStoreFull, Unavailable
from pipeline.tensors.content import Owner, contiguous, handle_for, length_bytes, require_identity, view
from pipeline.tensors.store import AnyArray
from schemas.tensor import TensorHandle

HEADER: Final = Struct("<8sI4x16sQQ32s")
"""Magic, version, case id, generation, length of the values in bytes, their SHA-256."""

HEADER_BYTES: Final = 128
MAGIC: Final = b"2READTNS"
VERSION: Final = 1

UNFINISHED_SUFFIX: Final = ".part"
UNFINISHED_FOR_S: Final = 15.0
"""A file that is still unfinished after this long has lost its writer: writing takes milliseconds."""

COUNT_AGAIN_AFTER_S: Final = 0.25
"""How long other processes' tensors may go unnoticed; the folder's own limit stands behind."""

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_OUR_NAME = re.compile(r"[0-9a-f]{32}(\.part)?")
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SharedMemoryStore:
    """A tensor store that all processes of one user on one host share.

    Parameters
    ----------
    folder
        Made where it is missing, for this user alone. Files with names that are not ours are left alone.
    capacity_bytes
        What all files together may take. The same in every process.

    Raises
    ------
    PermissionError
        The folder is not a folder of this user: in /dev/shm anybody may have put it there.
    """

    def __init__(self, folder: Path, *, capacity_bytes: int) -> None:
        self._folder = _own_folder(folder)
        self._capacity_bytes = capacity_bytes
        self._lock = Lock()
        # Between two counts only our own tensors are added and taken off.
        self._counted_bytes = 0
        self._count_again_at = 0.0

    def put(self, values: AnyArray, *, case_id: UUID, generation: int, expires_at: datetime) -> TensorHandle:
        """See `TensorStore.put`."""
        values = contiguous(values)
        handle = handle_for(values, store="shared_memory", case_id=case_id, generation=generation, expires_at=expires_at)
        with self._unfinished(handle, size_bytes=HEADER_BYTES + values.nbytes) as (file, path):
            _write_all(file, memoryview(_header_of(handle).ljust(HEADER_BYTES, b"\0")), at_byte=0)
            # An empty array has no bytes that could be cast.
            _write_all(file, values.data.cast("B") if values.size else memoryview(b""), at_byte=HEADER_BYTES)
            expires_ns = _since_epoch_ns(expires_at)
            os.utime(file, ns=(expires_ns, expires_ns))
            path.rename(self._folder / handle.key)
        return handle

    def get(self, handle: TensorHandle, *, case_id: UUID) -> AnyArray:
        """See `TensorStore.get`. Read, not mapped: a page fault costs more than its copy, and a torn file cannot end the process."""
        try:
            file = os.open(self._folder / handle.key, _READ)
        except FileNotFoundError:
            raise TensorMissing(case_id=case_id, key=handle.key) from None
        try:
            header = os.pread(file, HEADER_BYTES, 0)
            if len(header) < HEADER_BYTES:
                raise IdentityMismatch("a stored tensor has no header", case_id=case_id, key=handle.key)
            # One byte more than there should be, so that a file that is too long shows.
            content = memoryview(_read_all(file, length_bytes(handle) + 1, at_byte=HEADER_BYTES))
        finally:
            os.close(file)
        require_identity(handle, case_id=case_id, owner=_owner(header, handle), content=content)
        return view(content, handle)

    def free(self, handle: TensorHandle) -> None:
        """See `TensorStore.free`."""
        if self._holds(handle):
            self._remove(handle.key, size_bytes=HEADER_BYTES + length_bytes(handle))

    def reclaim(self, *, now: datetime) -> int:
        """See `TensorStore.reclaim`. Takes what dead writers left behind as well."""
        now_ns = _since_epoch_ns(now)
        unfinished_since_ns = now_ns - int(UNFINISHED_FOR_S * 1e9)
        removed_count = 0
        for name, status in self._files():
            if name.endswith(UNFINISHED_SUFFIX):
                # A writer that died just before the renaming has left the moment of expiry as its modification time.
                is_due = min(status.st_mtime_ns, status.st_ctime_ns) <= unfinished_since_ns
            else:
                is_due = status.st_mtime_ns <= now_ns
            if is_due:
                removed_count += self._remove(name, size_bytes=status.st_size)
        return removed_count

    def used_bytes(self) -> int:
        """See `TensorStore.used_bytes`. Counted now, headers and unfinished files included."""
        with self._lock:
            return self._count()

    def _holds(self, handle: TensorHandle) -> bool:
        """Whether what lies under the handle's key is what the handle names; a torn file is not."""
        try:
            file = os.open(self._folder / handle.key, _READ)
        except FileNotFoundError:
            return False
        try:
            return os.pread(file, HEADER.size, 0) == _header_of(handle)
        finally:
            os.close(file)

    @contextmanager
    def _unfinished(self, handle: TensorHandle, *, size_bytes: int) -> Iterator[tuple[int, Path]]:
        """Open a file of full size under a passing name; whatever fails inside, it does not stay."""
        path = self._folder / (handle.key + UNFINISHED_SUFFIX)
        file: int | None = None
        try:
            with self._lock:
                self._require_room(size_bytes)
                file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                # Full size at once: others count it from now on.
                os.ftruncate(file, size_bytes)
                self._counted_bytes += size_bytes
            yield file, path
        except BaseException as error:
            path.unlink(missing_ok=True)
            if ours := _in_our_words(error, handle, size_bytes):
                raise ours from error
            raise
        finally:
            if file is not None:
                os.close(file)

    def _require_room(self, wanted_bytes: int) -> None:
        if time.monotonic() >= self._count_again_at:
            self._count()
        if self._counted_bytes + wanted_bytes > self._capacity_bytes:
            raise TensorStoreFull(wanted_bytes=wanted_bytes, used_bytes=self._counted_bytes, capacity_bytes=self._capacity_bytes)

    def _count(self) -> int:
        self._counted_bytes = sum(status.st_size for _, status in self._files())
        self._count_again_at = time.monotonic() + COUNT_AGAIN_AFTER_S
        return self._counted_bytes

    def _files(self) -> Iterator[tuple[str, os.stat_result]]:
        try:
            listing = os.scandir(self._folder)
        except FileNotFoundError:
            # Somebody tidied /dev/shm: what was in it is gone, what comes next needs it again.
            _own_folder(self._folder)
            return
        with listing as entries:
            for entry in entries:
                # Another process may free it between the two calls.
                with suppress(FileNotFoundError):
                    if _OUR_NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                        yield entry.name, entry.stat(follow_symlinks=False)

    def _remove(self, name: str, *, size_bytes: int) -> bool:
        try:
            (self._folder / name).unlink()
        except FileNotFoundError:
            return False
        with self._lock:
            self._counted_bytes -= size_bytes
        return True


def _in_our_words(error: BaseException, handle: TensorHandle, size_bytes: int) -> Unavailable | None:
    """What went wrong while a tensor was written, where we have a name for it."""
    if isinstance(error, FileNotFoundError):
        return TensorMissing("reclaimed while it was written, or the folder is gone", key=handle.key)
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        return TensorStoreFull("the folder has no room", wanted_bytes=size_bytes)
    return None


def _own_folder(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise PermissionError(f"{folder} is not a folder of this user")
    if stat.S_IMODE(status.st_mode) & 0o077:
        folder.chmod(0o700)
    return folder


def _read_all(file: int, most_bytes: int, *, at_byte: int) -> bytes:
    """Read up to so many bytes; fewer only at the end of the file."""
    content = os.pread(file, most_bytes, at_byte)
    # The kernel gives at most 2 GiB a call.
    while len(content) < most_bytes and (more := os.pread(file, most_bytes - len(content), at_byte + len(content))):
        content += more
    return content


def _header_of(handle: TensorHandle) -> bytes:
    digest = bytes.fromhex(handle.digest)
    return HEADER.pack(MAGIC, VERSION, handle.case_id.bytes, handle.generation, length_bytes(handle), digest)


def _owner(header: bytes, handle: TensorHandle) -> Owner:
    magic, version, case_id, generation, written_bytes, digest = HEADER.unpack_from(header)
    if magic != MAGIC or version != VERSION:
        raise IdentityMismatch("a stored tensor has a foreign header", case_id=handle.case_id, key=handle.key)
    return Owner(UUID(bytes=case_id), generation, written_bytes, digest.hex())


def _write_all(file: int, content: memoryview, *, at_byte: int) -> None:
    while content.nbytes:
        written_bytes = os.pwrite(file, content, at_byte)
        content, at_byte = content[written_bytes:], at_byte + written_bytes


def _since_epoch_ns(moment: datetime) -> int:
    # In integers: a float would round the expiry that `reclaim` compares.
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000
