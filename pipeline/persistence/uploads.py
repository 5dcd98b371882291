"""Where received instances and results' pictures lie: a folder by default, S3 or any fsspec place by URL.

Names are ours: nothing that a sender wrote becomes part of a path.
"""

import os
import re
from collections.abc import Mapping
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import fsspec
from fsspec.implementations.local import LocalFileSystem

from pipeline.errors import SourceUnavailable, UploadMissing
from pipeline.flow import FETCH
from pipeline.persistence.bounded_reads import BoundedReads, Files
from pipeline.persistence.source_child import ChildFiles

_OUR_KEY = re.compile(r"([0-9a-f]{7})/\1[0-9a-f]{25}-[a-z0-9](?:\.?[a-z0-9-]){0,120}")
MOST_READERS = 8
"""Most connections by which one process reads from an upload store over the network."""
NOT_AN_OBJECT = (FileNotFoundError, IsADirectoryError, NotADirectoryError)


def received_key(case_id: UUID, number: int) -> str:
    """Where a case's received instance of this number (from 0) is kept."""
    return f"{_stem(case_id)}received-{number:04d}.dcm"


def is_of_case(key: str, case_id: UUID) -> bool:
    """Whether a key names something that is kept for this case."""
    return key.startswith(_stem(case_id))


def pictures_key(case_id: UUID, attempt: int) -> str:
    """Where the archive of a result's pictures is kept.

    Named for the claim that drew them: a worker that lost its claim cannot overwrite what the winner's report vouches for.
    """
    return f"{_stem(case_id)}reading-{attempt}.zip"


def _stem(case_id: UUID) -> str:
    """What all keys of a case begin with.

    Cases of the same eighteen minutes share a folder (their ids begin with the time): a folder for each would cost as much
    as what is written into it, its name and its parent being brought to the disk too.
    """
    return f"{case_id.hex[:7]}/{case_id.hex}-"


class ObjectPlace:
    """A folder-like place in any file system that fsspec knows."""

    def __init__(self, url: str, **options: Any) -> None:
        self._files, root = fsspec.core.url_to_fs(url, **options)
        self._root = root.rstrip("/")
        self._reads = BoundedReads(partial(open_files, url, **options), most=MOST_READERS)

    def write(self, key: str, data: bytes) -> None:
        """Keep an object. It is on the disk, not only in its cache, when this returns.

        Raises
        ------
        SourceUnavailable
            The place is away or full.
        """
        self.write_all({key: data})

    def write_all(self, objects: Mapping[str, bytes]) -> None:
        """Keep several objects, each as `write` does; objects of one folder share its way to the disk.

        Raises
        ------
        SourceUnavailable
            The place is away or full; some of them may have been kept.
        """
        paths = {self._path(key): data for key, data in objects.items()}
        try:
            if isinstance(self._files, LocalFileSystem):
                _write_local(paths)
                return
            for path, data in paths.items():
                self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
                # Readers see the whole object or none of it, also while two writers have the same key.
                temporary = _passing_name(path)
                self._files.pipe_file(temporary, data)
                self._files.mv(temporary, path)
        except OSError as error:
            raise SourceUnavailable("the object could not be written", kind=type(error).__name__) from error

    def read(self, key: str, *, limit_s: float = FETCH.limit_s) -> bytes:
        """Read a whole object. A folder of this host is read at once; a place over the network has the time that is given.

        Raises
        ------
        UploadMissing
            There is no such object.
        SourceUnavailable
            The place did not answer.
        SourceTimeout, SourceBusy
            It did not answer in time, or lets too many others wait.
        """
        try:
            path = self._path(key)
            if isinstance(self._files, LocalFileSystem):
                return Path(path).read_bytes()
            return self._reads.read(path, limit_s=limit_s)
        except NOT_AN_OBJECT as error:
            raise UploadMissing("no such object") from error
        except OSError as error:
            raise SourceUnavailable("the object could not be read", kind=type(error).__name__) from error

    def close(self) -> None:
        """Let go of every connection that was opened for reading."""
        self._reads.close()

    def find(self, key: str) -> bytes | None:
        """Read an object that may not be there."""
        try:
            return self.read(key)
        except UploadMissing:
            return None

    def remove_case(self, case_id: UUID) -> None:
        """Remove everything that was kept for a case; removing twice is fine."""
        folder, _, start = f"{self._root}/{_stem(case_id)}".rpartition("/")
        try:
            for path in self._files.ls(folder, detail=False):
                if path.rpartition("/")[2].startswith(start):
                    self._files.rm_file(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise SourceUnavailable("the objects could not be removed", kind=type(error).__name__) from error

    def _path(self, key: str) -> str:
        if not _OUR_KEY.fullmatch(key):
            raise UploadMissing("not a key of this store")
        return f"{self._root}/{key}"


def open_files(url: str, **options: Any) -> Files:
    """A connection that the caller alone uses: fsspec would hand out one for all, and few bear two threads at once."""
    kind = fsspec.get_filesystem_class(fsspec.core.split_protocol(url)[0] or "file")
    if not kind.async_impl and kind.protocol != "memory":
        return ChildFiles(url, **options)
    files: Files = fsspec.core.url_to_fs(url, skip_instance_cache=True, **options)[0]
    return files


def _passing_name(path: str) -> str:
    return f"{path}.{uuid4().hex}.part"


def _write_local(files: Mapping[str, bytes]) -> None:
    """Write files under passing names, bring them to the disk, then give them their names, and bring those to the disk."""
    folders = {Path(path).parent for path in files}
    for folder in folders:
        _make_folder(folder)
    for path, data in files.items():
        temporary = Path(_passing_name(path))
        with temporary.open("wb", buffering=0) as file:
            _write_all(file, memoryview(data))
            os.fsync(file.fileno())
        temporary.replace(path)
    for folder in folders:
        _sync_folder(folder)


def _write_all(file: FileIO, data: memoryview) -> None:
    while data.nbytes:
        data = data[file.write(data) :]


def _make_folder(folder: Path) -> None:
    """Make a folder and what is missing above it, each with its name on the disk."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    """Bring a folder's new names to the disk; a file's own sync does not."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
