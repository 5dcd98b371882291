"""A deployment of the demonstration's own: `secondread up` as a child, with its own folder, ports and servers."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from pipeline.errors import SecondreadError
from workers.access import Access, access_file, read_access
from workers.embedded.process import Launch, spawn
from workers.settings import Settings, bare_environment

START_LIMIT_S = 120.0
"""The first start makes a database, on a slow machine."""
DRAIN_LIMIT_S = 60.0
LOOK_EVERY_S = 0.05


class DidNotStart(SecondreadError):
    """`secondread up` ended, or took too long, before it was up."""

    code = "demo-did-not-start"
    title = "`secondread up` did not start"
    advice = "`secondread doctor` says what this machine lacks."


def demo_settings(settings: Settings) -> Settings:
    """The user's settings, with everything that could reach outside replaced: own servers, ports, folder, shipped model."""
    own = {
        "state_dir": settings.state_dir / "demo",
        "gateway_host": "127.0.0.1",
        "gateway_port": 0,
        "metrics_port": 0,
        "webhook_allow_networks": ("127.0.0.0/8",),
        "webhook_allow_http": True,
        "sources": {},
    }
    unset = dict.fromkeys(("redis_url", "database_url", "uploads_url", "public_url", "models_dir", "tensor_dir", "metrics_dir"))
    return settings.model_copy(update=own | unset)


class OwnDeployment:
    """`with OwnDeployment(settings) as own: access = own.wait_until_up(tell)`; the end of the block drains."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.log = settings.state_dir / "up.log"
        self._log_start_bytes = 0
        self._found: tuple[int, int] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start it, and return at once: there is something else to do meanwhile."""
        self._settings.state_dir.mkdir(parents=True, exist_ok=True)
        self._found = _identity(access_file(self._settings.state_dir))
        launch = Launch(
            argv=(sys.executable, "-m", "workers.cli.main", "up"),
            env=bare_environment() | self._settings.as_environment(),
            # If the demonstration is killed, its deployment drains.
            death_signal=signal.SIGTERM,
        )
        self._log_start_bytes = self.log.stat().st_size if self.log.exists() else 0
        self._process = spawn(launch, log=self.log)
        return self

    def wait_until_up(self, tell: Callable[[str], None]) -> Access:
        """Wait until the doors are open; `tell` is given the newest line of the log as often as it changes.

        Raises
        ------
        DidNotStart
            It ended, or it takes too long.
        """
        give_up_at = time.monotonic() + START_LIMIT_S
        told = ""
        while self._process is not None and self._process.poll() is None and time.monotonic() < give_up_at:
            # The file is replaced last of all: whoever sees the new one finds an open door.
            if _identity(access_file(self._settings.state_dir)) != self._found and (access := read_access(self._settings.state_dir)):
                return access
            if (line := self._last_lines(1)) != told:
                told = line
                tell(line.strip())
            time.sleep(LOOK_EVERY_S)
        raise DidNotStart(self._last_lines(5), log=str(self.log))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Drain, and after the limit use force."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(DRAIN_LIMIT_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _last_lines(self, count: int) -> str:
        with self.log.open("rb") as source:
            # A log that was put aside for its size begins anew.
            source.seek(self._log_start_bytes if self._log_start_bytes <= self.log.stat().st_size else 0)
            return "\n".join(source.read().decode(errors="replace").splitlines()[-count:])


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        facts = file.stat()
    except FileNotFoundError:
        return None
    return facts.st_ino, facts.st_mtime_ns
