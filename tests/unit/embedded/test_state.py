"""One state folder, one process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from workers.embedded.state import FolderInUse, FolderLock, StateFolder

HOLDS_AND_WAITS = """
import sys
from pathlib import Path
from workers.embedded.state import FolderLock
FolderLock(Path(sys.argv[1])).acquire()
print("held", flush=True)
sys.stdin.read()
"""


def holder(lock: Path) -> subprocess.Popen[str]:
    """Another process that holds the lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLDS_AND_WAITS, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_process_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    with holder(tmp_path / "lock") as other, pytest.raises(FolderInUse, match=str(other.pid)) as caught:
        FolderLock(tmp_path / "lock").acquire()
    assert caught.value.facts["folder"] == str(tmp_path)


def test_a_lock_ends_with_its_holder_however_that_died(tmp_path: Path) -> None:
    with holder(tmp_path / "lock") as other:
        other.send_signal(signal.SIGKILL)
    lock = FolderLock(tmp_path / "lock")
    lock.acquire()
    assert (tmp_path / "lock").read_text() == str(os.getpid())
    lock.release()


def test_a_state_folder_can_be_taken_again_after_it_was_let_go(open_folder: Path) -> None:
    for _ in range(2):
        with StateFolder(open_folder / "state", homes=()) as state, pytest.raises(FolderInUse):
            StateFolder(state.path, homes=()).__enter__()


def test_a_state_folder_gives_folders_that_are_ours_alone(open_folder: Path) -> None:
    with StateFolder(open_folder / "state", homes=()) as state:
        logs = state.folder("logs")
    assert (logs.parent, logs.stat().st_mode & 0o777) == (state.path, 0o700)
