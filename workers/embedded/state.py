"""The folder in which one installation keeps its servers' data, its logs and its uploads."""

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from pipeline.errors import SecondreadError
from workers.embedded.privileges import SHARED_HOMES, folder_in_reach, server_identity


class FolderInUse(SecondreadError):
    """Another process works in this folder."""

    code = "folder-in-use"
    title = "Another process works in this folder"
    advice = "Stop that process, or name another state folder."


class FolderLock:
    """A lock that the kernel drops when its holder dies, however it dies. The file names the holder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock."""
        return self._handle is not None

    def acquire(self) -> None:
        """Take the lock; taking it twice is fine.

        Raises
        ------
        FolderInUse
            Another process, or another object of this one, holds it.
        """
        if self.is_held:
            return
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(handle, 32).decode() or "unknown"
            os.close(handle)
            raise FolderInUse(f"process {holder} works in {self.path.parent}", folder=str(self.path.parent), pid=holder) from None
        os.ftruncate(handle, 0)
        os.write(handle, str(os.getpid()).encode())
        self._handle = handle

    def release(self) -> None:
        """Let go; the file stays, since to remove it would race with the next holder."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


class StateFolder:
    """`with StateFolder(wanted) as state:` holds the folder for this process alone.

    `path` is the wanted folder, except for root with a folder that the servers' user cannot reach: then it is the
    one that stands for it. Tell the user `path`.
    """

    def __init__(self, wanted: Path, *, homes: Sequence[Path] = SHARED_HOMES) -> None:
        self.path = folder_in_reach(wanted, server_identity(), homes)
        self._lock = FolderLock(self.path / "up.lock")

    @property
    def postgres(self) -> Path:
        """The folder for `EmbeddedPostgres`."""
        return self.path / "postgres"

    @property
    def valkey(self) -> Path:
        """The folder for `EmbeddedValkey`."""
        return self.path / "valkey"

    def folder(self, name: str) -> Path:
        """Make a folder in here that is ours alone, for logs or uploads."""
        path = self.path / name
        path.mkdir(mode=0o700, exist_ok=True)
        return path

    def __enter__(self) -> Self:
        """Take the folder, or raise `FolderInUse`."""
        self._lock.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Let go of the folder."""
        self._lock.release()
