"""D4 in small: readers and writers of the tensor store are killed, and no tensor is torn, lost or left for ever."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.tensors.shared_memory import UNFINISHED_FOR_S
from tests.faults.tensor_kills import kill_users
from workers.sweeper import RECLAIM_EVERY_S

KILLS = 20
LEAK_LIMIT_S = 30.0
"""The promise: a leaked slot is back after so long."""


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A folder where the product has its own store."""
    folder = Path(tempfile.mkdtemp(prefix="secondread-tests-", dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder)


def test_killed_readers_and_writers_tear_nothing_take_nothing_and_leave_nothing(in_memory: Path) -> None:
    toll = kill_users(in_memory, kills=KILLS)

    assert (toll.torn, toll.vanished, toll.left_bytes) == ([], [], 0)
    # The kills struck work: without these the test could pass although nothing ran.
    assert toll.kills == KILLS
    assert toll.reads > KILLS
    assert toll.unfinished


def test_a_slot_that_a_dead_writer_left_is_back_in_time() -> None:
    """given that the sweeper reclaims every so often, then an unfinished slot waits no longer than both together"""
    assert UNFINISHED_FOR_S + RECLAIM_EVERY_S <= LEAK_LIMIT_S
