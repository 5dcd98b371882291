"""The reading child: a process that waits for a place which knows no time limit, and may be killed over it.

Started by `ChildFiles`, never by hand. A JSON line in for the place and for each object; a JSON line out for each, then its bytes.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec

from pipeline.errors import SourceUnavailable

_PACKAGES = str(Path(__file__).resolve().parents[2])
ALARM_S = 60.0
"""The parent ends a late child long before; the alarm is for a child that has outlived its parent."""


class ChildFiles:
    """`Files` of a place whose library cannot be interrupted, read in a process that can. Used by one thread at a time."""

    async_impl = False

    def __init__(self, url: str, **options: Any) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-W", "ignore", "-m", "pipeline.persistence.source_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # a library's complaint may quote a path
            env=os.environ | {"PYTHONPATH": os.pathsep.join([_PACKAGES, *(entry for entry in sys.path if entry)])},
        )
        # Not as an argument: a URL may hold a password.
        self._tell({"url": url, "options": options})

    def cat_file(self, path: str, **_options: Any) -> bytes:
        """Read one whole object; returns, or raises, as soon as the child has answered or is dead."""
        self._tell({"path": path})
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        line = self._process.stdout.readline()
        if not line:
            raise SourceUnavailable("the reading child died")
        answer = json.loads(line)
        if answer["is_missing"]:
            raise FileNotFoundError("no such object")
        if answer["kind"] is not None:
            raise SourceUnavailable("the place did not give the object", kind=answer["kind"])
        return self._process.stdout.read(answer["size_bytes"])

    def kill(self) -> None:
        """End the child, whatever it waits for; whoever reads from it hears so at once. Killing twice is fine."""
        self._process.kill()

    def close(self) -> None:
        """End the child and close its pipes."""
        self.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _tell(self, line: dict[str, Any]) -> None:
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        self._process.stdin.write(json.dumps(line).encode() + b"\n")
        self._process.stdin.flush()


def main() -> None:
    """Answer until standard input ends."""
    # Whatever a library prints goes to standard error.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked = map(json.loads, sys.stdin.buffer)
    place = next(asked)
    files: Any = None
    for order in asked:
        signal.setitimer(signal.ITIMER_REAL, ALARM_S)
        data, is_missing, kind = b"", False, None
        try:
            files = files or fsspec.core.url_to_fs(place["url"], **place["options"])[0]
            data = files.cat_file(order["path"])
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            is_missing = True
        except Exception as error:  # the edge of the process: the parent is told
            files, kind = None, type(error).__name__
        signal.setitimer(signal.ITIMER_REAL, 0)
        answer = {"size_bytes": len(data), "is_missing": is_missing, "kind": kind}
        answers.write(json.dumps(answer).encode() + b"\n" + data)
        answers.flush()


if __name__ == "__main__":
    main()
