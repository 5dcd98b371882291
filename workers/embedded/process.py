"""A process of ours: born with few rights, gone with its parent, ended by its id; and what every embedded server shares."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from pipeline.errors import SecondreadError
from workers.embedded.ports import Address
from workers.embedded.privileges import Identity, folder_in_reach, give_folder, server_identity
from workers.embedded.state import FolderLock

SERVER_ENV: Mapping[str, str] = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}
"""A server of ours hears nothing else: no foreign PGPORT, no foreign locale."""

LOG_LIMIT_BYTES = 10 << 20
LOG_KEPT_COUNT = 3
"""A log beyond its limit is put aside when its process starts; so many are kept."""

_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1
_POLL_S = 0.005
_RETRY_PAUSES_S = (0.02, 0.1, 0.5)


class ServerFailed(SecondreadError):
    """An embedded server did not start, or is not running."""

    code = "embedded-server-failed"
    title = "An embedded server did not start"
    advice = "Read its log; a disk that is full and a folder from another version are the usual reasons."


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """All that decides how a process is born."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path | None = None
    identity: Identity | None = None
    """None: the user that we are."""
    death_signal: signal.Signals = signal.SIGKILL
    """What the kernel sends it when we die (Linux)."""


def spawn(launch: Launch, *, log: Path, pass_fds: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    """Start a process in a group of its own, so that Ctrl-C reaches us alone; its output is added to `log`.

    Call it from the main thread: to the kernel, the thread that started a process is its parent, and its end is ours.

    Raises
    ------
    OSError
        The program is not there or may not be run.
    """
    _rotate(log)
    identity = launch.identity
    sink = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        return subprocess.Popen(
            launch.argv,
            env=dict(launch.env),
            cwd=launch.cwd,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            user=identity.uid if identity else None,
            group=identity.gid if identity else None,
            extra_groups=[] if identity else None,
            process_group=0,
            pass_fds=pass_fds,
            preexec_fn=_bind_to_parent(os.getpid(), launch.death_signal),  # noqa: PLW1509 - two system calls, nothing imported
        )
    finally:
        os.close(sink)


def _rotate(log: Path) -> None:
    if not log.exists() or log.stat().st_size < LOG_LIMIT_BYTES:
        return
    generations = [log, *(log.with_name(f"{log.name}.{age}") for age in range(1, LOG_KEPT_COUNT + 1))]
    for younger, older in reversed(list(pairwise(generations))):
        if younger.exists():
            younger.replace(older)


def _bind_to_parent(parent_pid: int, death_signal: signal.Signals) -> Callable[[], None] | None:
    if _LIBC is None:
        return None
    prctl = _LIBC.prctl

    def bind() -> None:
        # After the change of user, which would clear it.
        prctl(_PR_SET_PDEATHSIG, int(death_signal))
        if os.getppid() != parent_pid:  # we died before the kernel knew what to do
            os._exit(1)

    return bind


def runs(pid: int, mark: str) -> bool:
    """Whether this process lives and its command line names `mark`: a process id alone may have passed to a stranger."""
    if sys.platform == "linux":
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False
    else:
        command = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, check=False).stdout
    return os.fsencode(mark) in command


def read_pid(pidfile: Path) -> int | None:
    """Read the process id on a pidfile's first line; None if there is none to trust."""
    try:
        first = pidfile.read_text().split("\n", 1)[0]
    except FileNotFoundError:
        return None
    # Zero and negative ids would address whole groups.
    return int(first) if first.isdecimal() and int(first) > 1 else None


class EmbeddedServer(ABC):
    """A server in a folder of its own: `with Server(folder) as server: server.url`.

    The folder holds the address, the configuration and the log, which are ours, and `data`, which is the server's.
    As root, a folder that the servers' user cannot reach is replaced: `folder` tells where it went.
    """

    name: ClassVar[str]
    stop_signal: ClassVar[signal.Signals]

    def __init__(self, folder: Path) -> None:
        self.identity = server_identity()
        self.folder = folder_in_reach(folder, self.identity)
        self.log = self.folder / "server.log"
        self._lock = FolderLock(self.folder / "owner.lock")
        self._address: Address | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """Where clients connect, password included: never print it."""

    @property
    @abstractmethod
    def pidfile(self) -> Path:
        """Where the server itself writes its process id."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether it answers our password now."""

    @abstractmethod
    def _configure(self) -> Launch:
        """Choose the address, write the configuration."""

    @property
    def config(self) -> Path:
        """The configuration file, which also marks the server's command line."""
        return self.folder / "server.conf"

    @property
    def data(self) -> Path:
        """The folder in which the server keeps its data."""
        return self.folder / "data"

    @property
    def address(self) -> Address:
        """Port and password; known once it was prepared."""
        if self._address is None:
            raise ServerFailed(f"{self.name} has not been started")
        return self._address

    @property
    def pid(self) -> int | None:
        """The process that serves this folder now, whoever started it."""
        pid = read_pid(self.pidfile)
        return pid if pid is not None and runs(pid, str(self.config)) else None

    def prepare(self) -> Launch:
        """Make all ready for a start by another, such as a supervisor, and say how to start it.

        What a killed predecessor left running in this folder is ended first.

        Raises
        ------
        FolderInUse
            Another process serves this folder.
        ServerFailed
            The data folder could not be made.
        """
        self._lock.acquire()
        try:
            self._end_running(grace_s=10.0)
            if read_pid(self.pidfile) is not None:  # its id may be a stranger's by now, whom the server would take for itself
                self.pidfile.unlink()
            return self._configure()
        except (SecondreadError, OSError):
            self._lock.release()
            raise

    def start(self, *, limit_s: float = 60.0) -> str:
        """Start, wait until it answers, and return its URL. A port lost to another in between is replaced.

        Raises
        ------
        FolderInUse
            Another process serves this folder.
        ServerFailed
            It ended each time, or did not answer within the limit.
        """
        for pause_s in (*_RETRY_PAUSES_S, 0.0):
            self._process = spawn(self.prepare(), log=self.log)
            if self._comes_up(self._process, limit_s):
                return self.url
            time.sleep(pause_s)  # what is left of a killed one may need a moment to go
        self.stop()
        raise ServerFailed(f"{self.name} did not start", log=str(self.log), last_lines=self.last_lines())

    def stop(self, *, grace_s: float = 10.0) -> None:
        """End it cleanly, after the grace by force, and let go of the folder. Stopping twice is fine."""
        if not self._lock.is_held:  # then what runs here is another's
            return
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(self.stop_signal)
            try:
                process.wait(grace_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._end_running(grace_s=grace_s)
        self._lock.release()

    def last_lines(self, count: int = 5) -> str:
        """Give the end of the log. The servers are told to keep values out of it."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])

    def __enter__(self) -> Self:
        """Start it."""
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop it."""
        self.stop()

    def _give_data_folder(self) -> None:
        give_folder(self.data, self.identity)

    def _comes_up(self, process: subprocess.Popen[bytes], limit_s: float) -> bool:
        give_up_at = time.monotonic() + limit_s
        while process.poll() is None:
            if self.is_ready():
                return True
            if time.monotonic() > give_up_at:
                self.stop()
                raise ServerFailed(f"{self.name} did not answer in time", limit_s=limit_s, log=str(self.log))
            time.sleep(_POLL_S)
        return False

    def _end_running(self, *, grace_s: float) -> None:
        pid = self.pid
        if pid is None:
            return
        kill_at = time.monotonic() + grace_s
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, self.stop_signal)
            while runs(pid, str(self.config)):
                if time.monotonic() > kill_at:
                    os.kill(pid, signal.SIGKILL)
                time.sleep(_POLL_S)
