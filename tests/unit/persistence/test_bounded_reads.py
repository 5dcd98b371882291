"""A place that is slow, silent or stuck holds nobody longer than was agreed, and no more readers than were allowed."""

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fsspec.asyn import AsyncFileSystem

from pipeline.errors import SourceBusy, SourceTimeout, SourceUnavailable, UploadMissing
from pipeline.persistence.bounded_reads import BoundedReads
from pipeline.persistence.sources import NamedSource
from tests.faults.ftp import FtpServer, running_ftp

LIMIT_S = 0.3
LONG_S = 20.0
SLACK_S = 5.0
"""For a machine that does other things."""


class Place:
    """A file system whose objects come when the test says so; each reader opens it anew."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.opened: list[Files] = []
        self.errors: list[Exception] = []

    def open(self) -> "Files":
        self.opened.append(Files(self))
        return self.opened[-1]


class Files:
    """One connection."""

    async_impl = False

    def __init__(self, place: Place) -> None:
        self._place = place
        self.users: set[int] = set()

    def cat_file(self, path: str, **_options: Any) -> bytes:
        self.users.add(threading.get_ident())
        if path == "stuck":
            self._place.released.wait()
        if path == "broken":
            raise self._place.errors.pop()
        return path.encode()


@pytest.fixture
def place() -> Iterator[Place]:
    place = Place()
    yield place
    place.released.set()


def stuck(reads: BoundedReads) -> None:
    with pytest.raises(SourceTimeout):
        reads.read("stuck", limit_s=LIMIT_S)


def test_one_connection_serves_one_object_after_the_other(place: Place) -> None:
    reads = BoundedReads(place.open, most=3)

    assert [reads.read(f"object-{number}", limit_s=LONG_S) for number in range(5)] == [b"object-%d" % number for number in range(5)]
    assert len(place.opened) == 1


def test_nothing_is_opened_before_it_is_needed(place: Place) -> None:
    BoundedReads(place.open, most=3)

    assert place.opened == []


def test_whoever_asks_is_free_again_when_the_time_is_over(place: Place) -> None:
    begun = time.monotonic()

    stuck(BoundedReads(place.open, most=1))

    assert LIMIT_S <= time.monotonic() - begun < LIMIT_S + SLACK_S


def test_a_stuck_reader_does_not_stand_in_the_way_of_the_next(place: Place) -> None:
    reads = BoundedReads(place.open, most=2)
    stuck(reads)

    assert reads.read("object", limit_s=LONG_S) == b"object"
    assert len(place.opened) == 2


def test_where_all_readers_are_stuck_nobody_else_waits_until_one_is_let_go(place: Place) -> None:
    reads = BoundedReads(place.open, most=2)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(stuck, [reads, reads]))

    begun = time.monotonic()
    with pytest.raises(SourceBusy):
        reads.read("object", limit_s=LONG_S)
    assert time.monotonic() - begun < SLACK_S
    assert len(place.opened) == 2

    place.released.set()
    until = time.monotonic() + LONG_S
    while time.monotonic() < until:
        try:
            assert reads.read("object", limit_s=LONG_S) == b"object"
            return
        except SourceBusy:
            continue
    pytest.fail("the readers that were let go were never replaced")


def test_readers_that_move_are_waited_for(place: Place) -> None:
    reads = BoundedReads(place.open, most=2)
    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(lambda number: reads.read(f"object-{number}", limit_s=LONG_S), range(200)))

    assert found == [b"object-%d" % number for number in range(200)]
    assert len(place.opened) <= 2


def test_no_connection_is_used_by_two_threads(place: Place) -> None:
    reads = BoundedReads(place.open, most=4)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: reads.read(f"object-{number}", limit_s=LONG_S), range(200)))

    assert all(len(files.users) <= 1 for files in place.opened)


def test_a_connection_that_failed_is_not_used_again(place: Place) -> None:
    reads = BoundedReads(place.open, most=1)
    place.errors = [EOFError("the server hung up")]

    with pytest.raises(SourceUnavailable):
        reads.read("broken", limit_s=LONG_S)
    assert reads.read("object", limit_s=LONG_S) == b"object"
    assert len(place.opened) == 2


def test_what_the_operating_system_says_is_passed_on(place: Place) -> None:
    place.errors = [PermissionError("no")]

    with pytest.raises(PermissionError):
        BoundedReads(place.open, most=1).read("broken", limit_s=LONG_S)


class NeverThere(AsyncFileSystem):  # type: ignore[misc]
    """A file system on an event loop, as s3fs is, whose server says nothing."""

    protocol = "never-there"
    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.cancelled = threading.Event()

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **_options: Any) -> bytes:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return b""


def test_what_runs_on_an_event_loop_is_cancelled_there() -> None:
    files = NeverThere()

    with pytest.raises(SourceTimeout):
        BoundedReads(lambda: files, most=1).read("object", limit_s=LIMIT_S)

    assert files.cancelled.wait(SLACK_S)


@pytest.fixture
def ftp() -> Iterator[FtpServer]:
    with running_ftp() as server:
        server.objects = {"/archive/us.dcm": b"DICM" * 1000, "/secret": b"secret"}
        yield server


def test_an_archive_behind_ftp_is_a_source_and_ends_at_its_root(ftp: FtpServer) -> None:
    source = NamedSource(f"{ftp.url}archive")

    assert source.read("us.dcm") == b"DICM" * 1000
    for path in ("none.dcm", "../secret", "/secret"):
        with pytest.raises(UploadMissing):
            source.read(path)


def test_an_archive_that_drips_is_given_up_in_time_and_used_again_when_it_flows(ftp: FtpServer) -> None:
    source = NamedSource(f"{ftp.url}archive", most_readers=2)
    ftp.drip_every_s = 0.05
    begun = time.monotonic()

    with pytest.raises(SourceTimeout):
        source.read("us.dcm", limit_s=LIMIT_S)

    assert time.monotonic() - begun < LIMIT_S + SLACK_S
    ftp.drip_every_s = None
    assert source.read("us.dcm", limit_s=LONG_S) == b"DICM" * 1000


def test_a_source_that_is_away_keeps_nothing_from_starting() -> None:
    with running_ftp() as server:
        url = server.url
    source = NamedSource(url)

    with pytest.raises(SourceUnavailable):
        source.read("us.dcm")


def test_a_pipe_in_a_folder_is_no_object_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "us.dcm")

    with pytest.raises(UploadMissing):
        NamedSource(str(tmp_path)).read("us.dcm", limit_s=LONG_S)
