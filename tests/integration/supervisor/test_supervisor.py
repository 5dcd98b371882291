"""The supervisor with real processes: how they start, die, start again and are drained."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import psycopg2
import pytest
import redis

from workers.embedded.ports import free_port, listening, serving
from workers.embedded.postgres import EmbeddedPostgres
from workers.embedded.process import LOG_LIMIT_BYTES, EmbeddedServer
from workers.embedded.valkey import EmbeddedValkey
from workers.supervisor import (
    DOORS,
    SERVERS,
    WORKERS,
    Backoff,
    Line,
    ProcessNeverReady,
    ProcessSpec,
    ProcessState,
    Supervisor,
    server_spec,
)

SAYS_READY = "import os, signal; os.write(int(os.environ['SECONDREAD_READY_FD']), b'ready\\n')\n"
WAITS = SAYS_READY + "signal.pause()"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SAYS_READY + "while True: signal.pause()"
ENV = {"LC_ALL": "C.UTF-8"}
AT_ONCE = Backoff(first_s=0.01)

STARTING, READY, DIED = ProcessState.STARTING, ProcessState.READY, ProcessState.DIED
STOPPING, STOPPED, KILLED = ProcessState.STOPPING, ProcessState.STOPPED, ProcessState.KILLED


def child(name: str, code: str = WAITS, *, order: int = WORKERS, stop_grace_s: float = 10.0) -> ProcessSpec:
    """A process that runs this code and tells on a pipe that it is ready."""
    argv = (sys.executable, "-S", "-c", code)
    return ProcessSpec(name=name, argv=argv, env=ENV, ready=Line(), order=order, stop_grace_s=stop_grace_s)


class Diary:
    """Writes down every change; does something at the first that is awaited."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, ProcessState]] = []
        self.deeds: dict[tuple[str, ProcessState, int], Callable[[], None]] = {}

    def __call__(self, name: str, state: ProcessState) -> None:
        self.changes.append((name, state))
        self.deeds.get((name, state, self.changes.count((name, state))), lambda: None)()

    def of(self, name: str) -> list[ProcessState]:
        return [state for who, state in self.changes if who == name]


@pytest.fixture
def diary() -> Diary:
    return Diary()


def kill_pid_in(path: Path) -> None:
    os.kill(int(path.read_text()), signal.SIGKILL)


def test_it_starts_the_servers_before_the_workers_and_those_before_the_doors(tmp_path: Path, diary: Diary) -> None:
    specs = [child("door", order=DOORS), child("server", order=SERVERS), child("worker", order=WORKERS)]
    with Supervisor(specs, log_folder=tmp_path, on_change=diary) as supervisor:
        assert supervisor.start()
        started = list(diary.changes)
    assert started == [(name, state) for name in ("server", "worker", "door") for state in (STARTING, READY)]


def test_it_starts_a_group_in_parallel(tmp_path: Path, diary: Diary) -> None:
    with Supervisor([child("one"), child("two")], log_folder=tmp_path, on_change=diary) as supervisor:
        supervisor.start()
        assert diary.changes[:2] == [("one", STARTING), ("two", STARTING)]


def test_it_drains_the_doors_before_the_workers_and_those_before_the_servers(tmp_path: Path, diary: Diary) -> None:
    specs = [child("server", order=SERVERS), child("worker", order=WORKERS), child("door", order=DOORS)]
    with Supervisor(specs, log_folder=tmp_path, on_change=diary) as supervisor:
        supervisor.start()
        diary.changes.clear()
    assert diary.changes == [(name, state) for name in ("door", "worker", "server") for state in (STOPPING, STOPPED)]


def test_a_process_that_was_killed_is_started_again(tmp_path: Path, diary: Diary) -> None:
    pidfile = tmp_path / "pid"
    code = f"import os; open({str(pidfile)!r}, 'w').write(str(os.getpid()))\n" + WAITS
    with Supervisor([child("worker", code)], log_folder=tmp_path, on_change=diary, backoff=AT_ONCE) as supervisor:
        diary.deeds[("worker", READY, 1)] = lambda: kill_pid_in(pidfile)
        diary.deeds[("worker", READY, 2)] = supervisor.ask_to_stop
        supervisor.start()
        supervisor.watch()
    assert diary.of("worker") == [STARTING, READY, DIED, STARTING, READY, STOPPING, STOPPED]


def test_one_that_does_not_stop_within_its_grace_is_killed(tmp_path: Path, diary: Diary) -> None:
    with Supervisor([child("worker", STUBBORN, stop_grace_s=0.05)], log_folder=tmp_path, on_change=diary) as supervisor:
        supervisor.start()
    assert diary.of("worker") == [STARTING, READY, STOPPING, KILLED]


def test_to_stop_twice_is_to_stop_once(tmp_path: Path, diary: Diary) -> None:
    with Supervisor([child("worker")], log_folder=tmp_path, on_change=diary) as supervisor:
        supervisor.start()
        supervisor.stop()
    assert diary.of("worker") == [STARTING, READY, STOPPING, STOPPED]


def test_one_that_is_not_ready_within_its_limit_is_started_anew(tmp_path: Path, diary: Diary) -> None:
    spec = ProcessSpec(name="worker", argv=("sleep", "1000"), env={}, ready=Line(), start_limit_s=0.05)
    with Supervisor([spec], log_folder=tmp_path, on_change=diary, backoff=AT_ONCE) as supervisor, pytest.raises(ProcessNeverReady):
        supervisor.start()
    assert diary.of("worker")[:4] == [STARTING, DIED, STARTING, DIED]


def test_one_that_always_dies_at_its_start_is_given_up_and_its_last_words_are_in_the_log(tmp_path: Path) -> None:
    spec = child("worker", "raise SystemExit('no model')")
    with (
        Supervisor([spec], log_folder=tmp_path, backoff=AT_ONCE) as supervisor,
        pytest.raises(ProcessNeverReady, match="worker died 3 times") as caught,
    ):
        supervisor.start()
    assert Path(str(caught.value.facts["log"])).read_text() == "no model\n" * 3


def test_a_program_that_is_not_there_is_named_in_the_log(tmp_path: Path) -> None:
    spec = ProcessSpec(name="worker", argv=("/no/such/program",), env={})
    with Supervisor([spec], log_folder=tmp_path, backoff=AT_ONCE) as supervisor, pytest.raises(ProcessNeverReady):
        supervisor.start()
    assert (tmp_path / "worker.log").read_text().startswith("/no/such/program: No such file")


def test_to_be_asked_to_stop_ends_a_start(tmp_path: Path, diary: Diary) -> None:
    with Supervisor([child("worker"), child("door", order=DOORS)], log_folder=tmp_path, on_change=diary) as supervisor:
        diary.deeds[("worker", READY, 1)] = supervisor.ask_to_stop
        assert not supervisor.start()
    assert (diary.of("worker")[-1], diary.of("door")) == (STOPPED, [])


def test_what_a_process_writes_goes_to_its_log_and_not_to_the_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Supervisor([child("worker", "print('hello', flush=True)\n" + WAITS)], log_folder=tmp_path) as supervisor:
        supervisor.start()
    assert (tmp_path / "worker.log").read_text() == "hello\n"
    assert capfd.readouterr() == ("", "")


def test_a_log_beyond_its_limit_is_put_aside_at_the_start(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    log.touch()
    os.truncate(log, LOG_LIMIT_BYTES)
    with Supervisor([child("worker")], log_folder=tmp_path) as supervisor:
        supervisor.start()
    assert (log.stat().st_size, (tmp_path / "worker.log.1").stat().st_size) == (0, LOG_LIMIT_BYTES)


def test_a_process_gets_the_given_environment_and_no_other(tmp_path: Path) -> None:
    code = "import os; print(sorted(set(os.environ) - {'SECONDREAD_READY_FD'}), flush=True)\n" + WAITS
    with Supervisor([child("worker", code)], log_folder=tmp_path) as supervisor:
        supervisor.start()
    assert (tmp_path / "worker.log").read_text() == "['LC_ALL']\n"


def test_a_process_is_in_a_group_of_its_own_so_that_the_terminals_signals_pass_it_by(tmp_path: Path) -> None:
    code = "import os; print(os.getpgrp() == os.getpid(), flush=True)\n" + WAITS
    with Supervisor([child("worker", code)], log_folder=tmp_path) as supervisor:
        supervisor.start()
    assert (tmp_path / "worker.log").read_text() == "True\n"


def test_what_a_process_started_ends_with_it(tmp_path: Path, diary: Diary, has_ended: Callable[[int], bool]) -> None:
    code = "import subprocess; print(subprocess.Popen(['sleep', '1000']).pid, flush=True)\n" + SAYS_READY + "os._exit(1)"
    slow = Backoff(first_s=100.0)
    with Supervisor([child("worker", code)], log_folder=tmp_path, on_change=diary, backoff=slow) as supervisor:
        diary.deeds[("worker", DIED, 1)] = supervisor.ask_to_stop
        supervisor.start()
        supervisor.watch()
    assert has_ended(int((tmp_path / "worker.log").read_text()))


def test_a_file_left_by_an_earlier_life_does_not_make_a_process_ready(tmp_path: Path) -> None:
    told = tmp_path / "ready"
    told.touch()
    code = f"import os, signal; print(os.path.exists({str(told)!r}), flush=True); open({str(told)!r}, 'w'); signal.pause()"
    spec = ProcessSpec(name="worker", argv=(sys.executable, "-S", "-c", code), env=ENV, ready=told)
    with Supervisor([spec], log_folder=tmp_path) as supervisor:
        supervisor.start()
    assert (tmp_path / "worker.log").read_text() == "False\n"


@pytest.mark.parametrize("question", [listening, lambda port: serving(port, "/")], ids=["accepts connections", "answers a GET"])
def test_a_door_is_ready_when_it_answers(tmp_path: Path, question: Callable[[int], Callable[[], bool]]) -> None:
    port = free_port()
    argv = (sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port))
    spec = ProcessSpec(name="door", argv=argv, env=ENV, cwd=tmp_path, ready=question(port))
    with Supervisor([spec], log_folder=tmp_path) as supervisor:
        supervisor.start()
        assert question(port)()


def test_to_watch_costs_nothing(tmp_path: Path) -> None:
    with Supervisor([child("worker")], log_folder=tmp_path) as supervisor:
        supervisor.start()

        def ring(number: int, frame: FrameType | None) -> None:
            supervisor.ask_to_stop()

        before = signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        used_s = time.process_time()
        supervisor.watch()
        used_s = time.process_time() - used_s
        signal.signal(signal.SIGALRM, before)
    assert used_s < 0.01


UP = """
import signal, sys
from pathlib import Path
# Whoever runs the tests in the background, or under nohup, has these ignored, and we would inherit that.
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
from workers.supervisor import Line, ProcessSpec, Supervisor
folder, code = Path(sys.argv[1]), sys.argv[2]
spec = ProcessSpec(name="worker", argv=(sys.executable, "-S", "-c", code), env={}, ready=Line(), stop_grace_s=1000)
with Supervisor([spec], log_folder=folder, on_change=lambda name, state: print(state, flush=True)) as supervisor:
    supervisor.start()
    supervisor.watch()
print("drained", flush=True)
"""


def up(folder: Path, code: str) -> subprocess.Popen[str]:
    """A supervisor in a process of its own, which tells each change of its worker."""
    return subprocess.Popen([sys.executable, "-c", UP, str(folder), code], stdout=subprocess.PIPE, text=True)


def read_until(process: subprocess.Popen[str], awaited: str) -> None:
    assert process.stdout is not None
    while line := process.stdout.readline().strip():
        if line == awaited:
            return
    pytest.fail(f"ended before it said {awaited}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_drains_and_ends_it(tmp_path: Path, number: signal.Signals) -> None:
    with up(tmp_path, WAITS) as process:
        read_until(process, "ready")
        process.send_signal(number)
        read_until(process, "stopped")
        read_until(process, "drained")
    assert process.returncode == 0


def test_a_second_signal_kills_what_does_not_stop(tmp_path: Path) -> None:
    with up(tmp_path, STUBBORN) as process:
        read_until(process, "ready")
        process.send_signal(signal.SIGINT)
        read_until(process, "stopping")
        process.send_signal(signal.SIGINT)
        read_until(process, "killed")
        read_until(process, "drained")


def test_the_processes_die_with_a_supervisor_that_is_killed(tmp_path: Path, has_ended: Callable[[int], bool]) -> None:
    with up(tmp_path, "import os; print(os.getpid(), flush=True)\n" + STUBBORN) as process:
        read_until(process, "ready")
        process.kill()
    assert has_ended(int((tmp_path / "worker.log").read_text()))


def write_to_valkey(server: EmbeddedValkey) -> None:
    with redis.Redis.from_url(server.url) as client:
        client.set("kept", "yes")
        client.execute_command("WAITAOF", 1, 0, 2000)


def read_from_valkey(server: EmbeddedValkey) -> object:
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        return client.get("kept")


def run_in_postgres(server: EmbeddedPostgres, statement: str) -> list[tuple[object, ...]]:
    connection = psycopg2.connect(server.url.replace("+psycopg2", ""))
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []
    finally:
        connection.close()


def kill(server: EmbeddedServer) -> None:
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)


@pytest.mark.services
def test_a_valkey_that_was_killed_comes_back_at_the_same_address_with_its_data(tmp_path: Path, server_folder: Path, diary: Diary) -> None:
    server = EmbeddedValkey(server_folder)

    def write_and_kill() -> None:
        write_to_valkey(server)
        kill(server)

    diary.deeds[("valkey", READY, 1)] = write_and_kill
    with Supervisor([server_spec(server)], log_folder=tmp_path, on_change=diary, backoff=AT_ONCE) as supervisor:
        diary.deeds[("valkey", READY, 2)] = supervisor.ask_to_stop
        supervisor.start()
        supervisor.watch()
        kept = read_from_valkey(server)
    server.stop()
    assert (kept, diary.of("valkey")) == ("yes", [STARTING, READY, DIED, STARTING, READY, STOPPING, STOPPED])


@pytest.mark.services
def test_a_postgres_that_was_killed_comes_back_at_the_same_address_with_its_data(tmp_path: Path, server_folder: Path, diary: Diary) -> None:
    server = EmbeddedPostgres(server_folder, is_durable=False)

    def write_and_kill() -> None:
        run_in_postgres(server, "CREATE TABLE kept AS SELECT 7")
        kill(server)

    diary.deeds[("postgres", READY, 1)] = write_and_kill
    with Supervisor([server_spec(server)], log_folder=tmp_path, on_change=diary) as supervisor:
        diary.deeds[("postgres", READY, 2)] = supervisor.ask_to_stop
        supervisor.start()
        supervisor.watch()
        kept = run_in_postgres(server, "SELECT * FROM kept")
    server.stop()
    assert (kept, diary.of("postgres")) == ([(7,)], [STARTING, READY, DIED, STARTING, READY, STOPPING, STOPPED])
