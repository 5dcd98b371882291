"""What is told to the tests of the servers: how to see a process end without asking again and again."""

import os
import select
from collections.abc import Callable

import pytest


@pytest.fixture
def has_ended() -> Callable[[int], bool]:
    """Whether a process ends within five seconds; the kernel tells, for processes that are not our children too."""

    def wait(pid: int) -> bool:
        try:
            watched = os.pidfd_open(pid)
        except ProcessLookupError:
            return True
        try:
            return bool(select.select([watched], [], [], 5.0)[0])
        finally:
            os.close(watched)

    return wait
