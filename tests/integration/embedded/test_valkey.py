"""The embedded Valkey, as its clients and its operator see it."""

import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from workers.embedded.ports import LOOPBACK
from workers.embedded.process import Launch, ServerFailed, spawn
from workers.embedded.state import FolderInUse
from workers.embedded.valkey import EmbeddedValkey

pytestmark = pytest.mark.services


def client_of(server: EmbeddedValkey) -> redis.Redis:
    return redis.Redis.from_url(server.url, decode_responses=True)


def test_a_restart_keeps_address_and_data(server_folder: Path) -> None:
    with EmbeddedValkey(server_folder) as server, client_of(server) as client:
        url = server.url
        client.set("kept", "yes")
    with EmbeddedValkey(server_folder) as server, client_of(server) as client:
        assert (server.url, client.get("kept")) == (url, "yes")


def test_after_a_kill_it_starts_with_what_was_on_disk(server_folder: Path, has_ended: Callable[[int], bool]) -> None:
    server = EmbeddedValkey(server_folder)
    server.start()
    with client_of(server) as client:
        client.set("kept", "yes")
        client.execute_command("WAITAOF", 1, 0, 2000)
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    server.stop()
    with EmbeddedValkey(server_folder) as server, client_of(server) as client:
        assert client.get("kept") == "yes"


def test_a_wrong_password_and_none_are_refused(valkey: EmbeddedValkey) -> None:
    for password in ("guessed", None):
        with (
            redis.Redis(port=valkey.address.port, password=password, retry=Retry(NoBackoff(), 0)) as client,
            pytest.raises(redis.AuthenticationError),
        ):
            client.ping()


def test_it_never_evicts_and_has_a_limit(server_folder: Path) -> None:
    with EmbeddedValkey(server_folder, maxmemory_bytes=64 << 20) as server, client_of(server) as client:
        facts = client.info()
    assert isinstance(facts, dict)
    assert (facts["maxmemory_policy"], facts["maxmemory"], facts["aof_enabled"]) == ("noeviction", 64 << 20, 1)


def test_without_durability_nothing_is_kept(server_folder: Path) -> None:
    with EmbeddedValkey(server_folder, is_durable=False) as server, client_of(server) as client:
        client.set("kept", "yes")
    with EmbeddedValkey(server_folder, is_durable=False) as server, client_of(server) as client:
        assert client.get("kept") is None


def test_it_listens_on_loopback_alone(valkey: EmbeddedValkey) -> None:
    listening = [place.laddr.ip for place in psutil.Process(valkey.pid).net_connections() if place.status == psutil.CONN_LISTEN]
    assert listening == [LOOPBACK]


def test_the_password_is_in_no_command_line_and_in_no_file_that_others_may_read(valkey: EmbeddedValkey) -> None:
    password = valkey.address.password
    assert password not in " ".join(psutil.Process(valkey.pid).cmdline())
    holding = [path for path in valkey.folder.iterdir() if path.is_file() and password in path.read_text()]
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in holding} == {"address.json": 0o600, "server.conf": 0o600}


def test_it_does_not_run_as_root(valkey: EmbeddedValkey) -> None:
    assert all(uid != 0 for uid in psutil.Process(valkey.pid).uids())


def test_a_port_that_another_took_meanwhile_is_given_up(server_folder: Path) -> None:
    with EmbeddedValkey(server_folder) as server:
        port = server.address.port
    with socket.create_server((LOOPBACK, port)), EmbeddedValkey(server_folder) as server, client_of(server) as client:
        assert (server.address.port != port, client.ping()) == (True, True)


class LosesTheRace(EmbeddedValkey):
    """Whose port is taken by another, once, between the choice and the start."""

    thief: socket.socket | None = None

    def prepare(self) -> Launch:
        launch = super().prepare()
        if self.thief is None:
            self.thief = socket.create_server((LOOPBACK, self.address.port))
        return launch


def test_a_race_for_the_port_that_is_lost_is_run_again(server_folder: Path) -> None:
    with LosesTheRace(server_folder) as server, client_of(server) as client:
        assert server.thief is not None
        with server.thief:
            assert client.ping()


def test_a_second_owner_is_refused_and_leaves_the_server_alone(valkey: EmbeddedValkey) -> None:
    second = EmbeddedValkey(valkey.folder)
    with pytest.raises(FolderInUse):
        second.start()
    second.stop()
    assert valkey.is_ready()


STARTS_AND_WAITS = """
import signal, sys
from pathlib import Path
from workers.embedded.valkey import EmbeddedValkey
server = EmbeddedValkey(Path(sys.argv[1]))
server.start()
print(server.pid, flush=True)
signal.pause()
"""


def test_it_dies_with_its_owner(server_folder: Path, has_ended: Callable[[int], bool]) -> None:
    command = [sys.executable, "-c", STARTS_AND_WAITS, str(server_folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        owner.kill()
    assert has_ended(pid)


def test_one_that_outlived_its_owner_is_ended_before_the_next_start(server_folder: Path, has_ended: Callable[[int], bool]) -> None:
    owner = EmbeddedValkey(server_folder)
    launch = owner.prepare()
    owner.stop()
    orphan = spawn(launch, log=owner.log)
    while not owner.is_ready():
        assert orphan.poll() is None
    with EmbeddedValkey(server_folder) as server:
        assert has_ended(orphan.pid)
        assert server.pid != orphan.pid
    assert orphan.wait() == 0


def test_a_program_that_cannot_serve_is_told_with_the_log(server_folder: Path) -> None:
    with pytest.raises(ServerFailed) as caught:
        EmbeddedValkey(server_folder, program=Path("/bin/false")).start()
    assert caught.value.facts["log"] == str(server_folder / "server.log")
