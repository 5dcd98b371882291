"""The parent's end of one decode child: start it, hand it an instance, end it."""

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
from pydantic import ValidationError

from pipeline.dicom.channel import Header, receive, send
from pipeline.dicom.errors import REFUSALS, DecoderUnavailable, DecodeTimedOut
from pipeline.dicom.instance import MIB, DecodedInstance, DecodeLimits, StoredArray
from pipeline.errors import DecoderCrashed
from schemas.instance import InstanceHeader

_PACKAGES: Final = str(Path(__file__).resolve().parents[2])
_PIPE_BYTES: Final = MIB
"""A 512 x 512 image passes in one write; the default of 64 KiB would take four turns of both processes."""
_DTYPES: Final = ("uint8", "int8", "uint16", "int16", "uint32", "int32")
_DEATH_S: Final = 1.0
"""A child whose pipe has ended is gone at once; until then it is only not yet reaped."""


class ChildProcess:
    """One decode child. Used by one thread at a time."""

    def __init__(self, limits: DecodeLimits) -> None:
        self._limits = limits
        self.is_ready = False
        """It has said that it waits for work."""
        self.is_spent = False
        """It is dead, or must not be used again."""
        self.peak_rss_bytes = 0
        """Highest resident memory during the last answer."""
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-W", "ignore", "-m", "pipeline.dicom.child", json.dumps(asdict(limits))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # a codec's complaint may quote the file
            env=_environment(),
            bufsize=0,
            pipesize=_PIPE_BYTES,
            close_fds=True,
        )
        self._stdin_fd, self._stdout_fd = _fd_of(self._process.stdin), _fd_of(self._process.stdout)
        os.set_blocking(self._stdin_fd, False)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def await_ready(self, *, until_s: float) -> None:
        """Wait until the child has loaded its codecs and taken its limits.

        Raises
        ------
        DecoderUnavailable
            It died, or is not ready at the monotonic time `until_s`.
        """
        if self.is_ready:
            return
        try:
            receive(self._stdout_fd, payload_limit_bytes=0, until_s=until_s)
        except TimeoutError as error:
            raise DecoderUnavailable("a decode child was not ready in time") from error
        except (EOFError, ValueError) as error:
            self.is_spent = True
            raise DecoderUnavailable("a decode child could not be started", exit_status=self._exit_status()) from error
        self.is_ready = True

    def decode(self, data: bytes, *, timeout_s: float) -> DecodedInstance:
        """Have one instance decoded.

        Raises
        ------
        RejectedInput
            What the child found wrong with the instance, as a class of `pipeline.dicom.errors`.
        DecodeTimedOut
            No answer in time; the child is spent.
        DecoderCrashed
            The child died of it, or spoke nonsense; it is spent.
        """
        until_s = time.monotonic() + timeout_s
        self.is_spent = True  # until the whole answer is here: whatever interrupts leaves half a frame in the pipes
        try:
            send(self._stdin_fd, {"limit_s": timeout_s}, memoryview(data), until_s=until_s)
            answer, pixels = receive(self._stdout_fd, payload_limit_bytes=self._limits.pixel_budget_bytes, until_s=until_s)
            return self._understood(answer, pixels)
        except TimeoutError as error:
            raise DecodeTimedOut(limit_s=timeout_s) from error
        except (EOFError, BrokenPipeError) as error:
            raise DecoderCrashed(exit_status=self._exit_status()) from error
        except (ValueError, KeyError, TypeError, ValidationError) as error:
            raise DecoderCrashed("the decode child's answer cannot be understood") from error

    def end(self) -> None:
        """End the process and close its pipes. Ending twice is fine."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _understood(self, answer: Header, pixels: bytearray) -> DecodedInstance:
        self.peak_rss_bytes = int(answer["peak_rss_bytes"])
        self.is_spent = bool(answer["is_retiring"])
        if "code" in answer:
            raise REFUSALS[answer["code"]](answer["message"], **answer["facts"])
        if answer["dtype"] not in _DTYPES or prod(answer["shape"]) * np.dtype(answer["dtype"]).itemsize != len(pixels):
            raise ValueError("the pixels are not those that were announced")
        stored: StoredArray = np.ndarray(tuple(answer["shape"]), np.dtype(answer["dtype"]), buffer=pixels)
        return DecodedInstance(InstanceHeader.model_validate(answer["header"]), stored)

    def _exit_status(self) -> int | None:
        """The exit status, or the negative number of the signal that ended it."""
        try:
            return self._process.wait(_DEATH_S)
        except subprocess.TimeoutExpired:
            return None


def _fd_of(pipe: Any) -> int:
    return int(pipe.fileno())


def _environment() -> dict[str, str]:
    """The least that the child needs: where the packages lie, and one thread for each library."""
    return {
        "PYTHONPATH": os.pathsep.join([_PACKAGES, *(entry for entry in sys.path if entry)]),
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "2",
    }
