"""The decode child: a process that reads hostile bytes under limits and may die of them.

Started by `pipeline.dicom.child_process`, never by hand. Its standard output carries frames of the channel and
nothing else; whatever a C library prints goes to standard error.
"""

import json
import os
import resource
import signal
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from pipeline.dicom.channel import receive, send
from pipeline.dicom.errors import CorruptHeader
from pipeline.dicom.instance import DecodeLimits
from pipeline.dicom.reading.instance import read_instance
from pipeline.dicom.reading.verdict import foreign_errors_as
from pipeline.errors import RejectedInput

STDIN_FD: Final = 0
CODECS: Final = ("gdcm", "jpeg_ls", "openjpeg", "rle", "PIL.JpegImagePlugin")
"""Loaded before the limits fall and before the first case; a missing one ends the child at its start."""
NO_PAYLOAD: Final = memoryview(b"")
ALARM_GRACE_S: Final = 1.0
"""The parent ends a late child first; the alarm is for a child that has outlived its parent."""
_STATUS: Final = Path("/proc/self/status")
_CLEAR_REFS: Final = Path("/proc/self/clear_refs")
_RESET_PEAK: Final = "5"
"""proc(5): resets the peak resident set size."""


def main() -> None:
    """Answer frames until standard input ends."""
    limits = DecodeLimits(**json.loads(sys.argv[1]))
    answers_fd = _claim_stdout()
    for codec in CODECS:
        import_module(codec)
    _confine(limits)
    send(answers_fd, {"ready": True}, NO_PAYLOAD)
    is_retiring = False
    while not is_retiring:
        try:
            is_retiring = _serve_one(answers_fd, limits)
        except EOFError:  # the parent has ended
            return


def _serve_one(answers_fd: int, limits: DecodeLimits) -> bool:
    """Take one request and answer it; True where this process has grown too large to go on."""
    request, received = receive(STDIN_FD, payload_limit_bytes=limits.memory_bytes)
    data = bytes(received)
    del received
    signal.setitimer(signal.ITIMER_REAL, float(request["limit_s"]) + ALARM_GRACE_S)
    is_retiring = _answer(answers_fd, data, limits)
    signal.setitimer(signal.ITIMER_REAL, 0)
    return is_retiring


def _answer(answers_fd: int, data: bytes, limits: DecodeLimits) -> bool:
    """Decode one instance and send what came of it."""
    _reset_peak()
    answer, pixels = _outcome(data, limits)
    peak_bytes = _peak_rss_bytes()
    is_retiring = peak_bytes > limits.retire_bytes
    send(answers_fd, {**answer, "peak_rss_bytes": peak_bytes, "is_retiring": is_retiring}, pixels)
    return is_retiring


def _outcome(data: bytes, limits: DecodeLimits) -> tuple[Mapping[str, Any], memoryview]:
    try:
        with foreign_errors_as(CorruptHeader, "the data set cannot be read"):
            decoded = read_instance(data, limits=limits)
    except RejectedInput as refusal:
        return {"code": refusal.code, "message": str(refusal), "facts": refusal.facts}, NO_PAYLOAD
    stored = np.ascontiguousarray(decoded.stored)
    answer = {"header": decoded.header.model_dump(mode="json"), "shape": stored.shape, "dtype": stored.dtype.name}
    return answer, stored.data.cast("B")


def _claim_stdout() -> int:
    """Keep standard output for frames; give the libraries standard error in its place."""
    answers_fd = os.dup(1)
    os.dup2(2, 1)
    return answers_fd


def _confine(limits: DecodeLimits) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process even inside a C codec
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the parent decides
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))


def _reset_peak() -> None:
    try:
        _CLEAR_REFS.write_text(_RESET_PEAK, encoding="ascii")
    except OSError:  # not on this system, or not allowed: the peak is then that of the whole life
        return


def _peak_rss_bytes() -> int:
    try:
        status = _STATUS.read_text(encoding="ascii")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:")), 0)


if __name__ == "__main__":
    main()
