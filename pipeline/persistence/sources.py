"""Places that the operator configured by name: a client may name an object below one, and a slow one delays nobody else."""

import os
import stat
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from pipeline.errors import SourceUnavailable, UploadMissing
from pipeline.flow import FETCH
from pipeline.persistence.bounded_reads import BoundedReads, Files
from pipeline.persistence.uploads import NOT_AN_OBJECT, open_files


class NamedSource:
    """A read-only place that the operator configured by name; clients name objects below it.

    The client's path is joined below the root after it was checked: no parent steps, no scheme, no leading slash.
    Nothing is opened before the first read: a source that is away keeps no process from starting.
    """

    def __init__(self, url: str, *, most_readers: int = 2, **options: Any) -> None:
        """Take an fsspec URL, the most objects that are read from it at once, and options of its file system."""
        kind = fsspec.get_filesystem_class(fsspec.core.split_protocol(url)[0] or "file")
        self._is_local = issubclass(kind, LocalFileSystem)
        self._root: str = kind._strip_protocol(url).rstrip("/")
        opening = _LocalFiles if self._is_local else partial(open_files, url, **options)
        self._reads = BoundedReads(opening, most=most_readers)

    def read(self, path: str, *, limit_s: float = FETCH.limit_s) -> bytes:
        """Read one object below the root.

        Raises
        ------
        UploadMissing
            There is no such object, or the path leaves the root.
        SourceUnavailable
            The source did not answer.
        SourceTimeout, SourceBusy
            It did not answer in time, or lets too many others wait.
        """
        parts = PurePosixPath(path)
        if parts.is_absolute() or ".." in parts.parts or ":" in path or "\\" in path or "\0" in path or not path:
            raise UploadMissing("the path leaves the source")
        full = f"{self._root}/{parts}"
        try:
            if self._is_local and not os.path.realpath(full).startswith(os.path.realpath(self._root) + os.sep):
                raise UploadMissing("the path leaves the source")
            return self._reads.read(full, limit_s=limit_s)
        except NOT_AN_OBJECT as error:
            raise UploadMissing("no such object in the source") from error
        except OSError as error:
            raise SourceUnavailable("the source did not answer", kind=type(error).__name__) from error


class _LocalFiles(Files):
    """Files of this host, or of a share that is mounted here."""

    async_impl = False

    def cat_file(self, path: str, **_options: Any) -> bytes:
        """Read a regular file; a pipe or a device is no object, and is not waited for."""
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor has no path
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise FileNotFoundError("not a regular file")
            return file.read()
