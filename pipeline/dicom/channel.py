"""What parent and decode child say to each other: one JSON header and one payload a frame, over pipes.

A frame is two lengths (4 and 8 bytes, big endian), the header in UTF-8, the payload. Nothing is ever unpickled: the
child has had hostile bytes in its hands.
"""

import json
import os
import select
import struct
import time
from collections.abc import Mapping
from typing import Any, Final

_LENGTHS: Final = struct.Struct(">IQ")
HEADER_LIMIT_BYTES: Final = 1024 * 1024
"""A header is a kilobyte or two; a longer one is not from our child."""

Header = dict[str, Any]


def send(fd: int, header: Mapping[str, Any], payload: memoryview, *, until_s: float | None = None) -> None:
    """Write one frame.

    Parameters
    ----------
    fd
        The pipe; non-blocking where `until_s` is given.
    header
        What JSON can say.
    payload
        Bytes, contiguous.
    until_s
        Monotonic time at which to give up; None waits for ever.

    Raises
    ------
    BrokenPipeError
        The other side is gone.
    TimeoutError
        It did not take the frame in time.
    """
    text = json.dumps(header, separators=(",", ":")).encode()
    waiting = [memoryview(_LENGTHS.pack(len(text), payload.nbytes) + text), payload.cast("B")]
    while waiting:
        _await(fd, select.POLLOUT, until_s)
        try:
            sent = os.writev(fd, waiting)
        except BlockingIOError:  # poll may promise less room than a write of ours needs
            continue
        waiting = _rest(waiting, sent)


def receive(fd: int, *, payload_limit_bytes: int, until_s: float | None = None) -> tuple[Header, bytearray]:
    """Read one frame.

    Raises
    ------
    EOFError
        The other side is gone.
    ValueError
        It said something that is not a frame, or a payload beyond the limit.
    TimeoutError
        It did not finish the frame in time.
    """
    header_bytes, payload_bytes = _LENGTHS.unpack(_read(fd, _LENGTHS.size, until_s))
    if header_bytes > HEADER_LIMIT_BYTES or payload_bytes > payload_limit_bytes:
        raise ValueError("the frame is longer than any of ours")
    header = json.loads(_read(fd, header_bytes, until_s))
    if not isinstance(header, dict):
        raise ValueError("the header is no object")
    return header, _read(fd, payload_bytes, until_s)


def _rest(parts: list[memoryview], sent_bytes: int) -> list[memoryview]:
    rest = []
    for part in parts:
        taken = min(sent_bytes, part.nbytes)
        sent_bytes -= taken
        if taken < part.nbytes:
            rest.append(part[taken:])
    return rest


def _read(fd: int, size_bytes: int, until_s: float | None) -> bytearray:
    read = bytearray(size_bytes)
    view = memoryview(read)
    while view:
        _await(fd, select.POLLIN, until_s)
        count = os.readv(fd, [view])
        if count == 0:
            raise EOFError
        view = view[count:]
    return read


def _await(fd: int, event: int, until_s: float | None) -> None:
    if until_s is None:  # a blocking pipe waits by itself
        return
    poll = select.poll()
    poll.register(fd, event)
    left_s = max(0.0, until_s - time.monotonic())
    if not poll.poll(left_s * 1000):
        raise TimeoutError
