import os
import struct
import time
from collections.abc import Iterator

import pytest

from pipeline.dicom.channel import receive, send


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue  # the test has closed it


def test_a_frame_arrives_as_it_was_sent(pipe: tuple[int, int]) -> None:
    send(pipe[1], {"limit_s": 1.5, "word": "ä"}, memoryview(b"pixels"))
    assert receive(pipe[0], payload_limit_bytes=6) == ({"limit_s": 1.5, "word": "ä"}, bytearray(b"pixels"))


def test_a_payload_beyond_the_limit_is_not_read(pipe: tuple[int, int]) -> None:
    send(pipe[1], {}, memoryview(b"pixels"))
    with pytest.raises(ValueError, match="longer"):
        receive(pipe[0], payload_limit_bytes=5)


def test_a_header_that_is_no_object_is_refused(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], struct.pack(">IQ", 2, 0) + b"[]")
    with pytest.raises(ValueError, match="no object"):
        receive(pipe[0], payload_limit_bytes=0)


def test_the_end_of_the_other_side_is_noticed_inside_a_frame(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], struct.pack(">IQ", 2, 10) + b"{}half")
    os.close(pipe[1])
    with pytest.raises(EOFError):
        receive(pipe[0], payload_limit_bytes=10)


def test_a_read_gives_up_when_its_time_has_passed(pipe: tuple[int, int]) -> None:
    with pytest.raises(TimeoutError):
        receive(pipe[0], payload_limit_bytes=10, until_s=time.monotonic() - 1)


def test_a_write_that_nobody_takes_gives_up_when_its_time_has_passed(pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[1], False)
    with pytest.raises(TimeoutError):
        send(pipe[1], {}, memoryview(bytes(4_000_000)), until_s=time.monotonic() + 0.05)
