"""A decode child dies with a case aboard: the case is read by another, its neighbour never notices, the worker lives on."""

import fcntl
import os
import struct
import termios
from collections.abc import Sequence

import psutil
import pytest

from tests.acceptance.running import Deployment, eventually

pytestmark = pytest.mark.services

READ_AGAIN_S = 30.0
"""For a slow machine; it takes half a second on a quick one, a new child included."""


def decode_children(intake: psutil.Process) -> list[psutil.Process]:
    return [child for child in intake.children(recursive=True) if "pipeline.dicom.child" in child.cmdline()]


def bytes_aboard(child: psutil.Process) -> int:
    """How much of an instance waits for a child that does not read."""
    pipe = os.open(f"/proc/{child.pid}/fd/0", os.O_RDONLY | os.O_NONBLOCK)
    try:
        (count,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
    finally:
        os.close(pipe)
    return int(count)


def test_a_case_whose_decode_child_is_killed_is_read_by_another(deployment: Deployment, small_studies: Sequence[bytes]) -> None:
    intake = deployment.worker("intake")
    children = decode_children(intake)
    for child in children:
        child.suspend()
    try:
        victim = deployment.door.accepted(small_studies[0])["case_id"]
        loaded = eventually(lambda: [child for child in children if bytes_aboard(child)], within_s=READ_AGAIN_S)
        neighbour = deployment.door.accepted(small_studies[1])["case_id"]
        eventually(lambda: len([child for child in children if bytes_aboard(child)]) == 2, within_s=READ_AGAIN_S)
        (struck,) = loaded
        struck.kill()
    finally:
        for child in children:
            if child.is_running():
                child.resume()

    for case_id, codes in ((victim, ["decoder-crashed", "retry"]), (neighbour, [])):
        assert deployment.door.ended(case_id, within_s=READ_AGAIN_S)["status"] == "completed"
        events = deployment.rows(
            "SELECT code FROM case_events WHERE case_id = %s::uuid AND code IS NOT NULL AND entered_state <> 'completed' ORDER BY id",
            case_id.removeprefix("case_"),
        )
        assert [code for (code,) in events] == codes
    assert deployment.worker("intake").pid == intake.pid
    assert len(decode_children(intake)) == len(children)
