"""Starts, watches and drains the processes of one machine, in one thread that sleeps until something happens."""

import contextlib
import math
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from pipeline.errors import SecondreadError
from workers.embedded.process import EmbeddedServer, Launch, spawn

READY_FD = "SECONDREAD_READY_FD"
"""The variable that names the descriptor on which a child says, with one line, that it is ready."""

SERVERS, WORKERS, DOORS = 0, 1, 2
"""The usual orders: started rising, drained falling, so work stops coming in before anything else stops."""

_PROBE_EVERY_S = 0.02
_MOST_DEATHS_AT_START = 3


class ProcessNeverReady(SecondreadError):
    """A process died each time before it was ready."""

    code = "process-never-ready"
    title = "A process of secondread does not start"
    advice = "Read its log: the last lines say why it ended."


class ProcessState(StrEnum):
    """Where a process stands, as told to `on_change`."""

    STARTING = "starting"
    READY = "ready"
    DIED = "died"
    """It will be started again."""
    STOPPING = "stopping"
    STOPPED = "stopped"
    KILLED = "killed"
    """It had not stopped within its grace."""


@dataclass(frozen=True, slots=True)
class Line:
    """Ready when the child has written a line to the descriptor that `READY_FD` names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec(Launch):
    """One process to keep alive: how it is born, and how we live with it. `env` is its whole environment."""

    name: str
    ready: Line | Path | Callable[[], bool] | None = None
    """A line from the child; a file that it makes (removed before each start); a quick question asked every 20 ms
    (`ports.listening`, `ports.serving`); None: ready as soon as it runs."""
    order: int = WORKERS
    stop_signal: signal.Signals = signal.SIGTERM
    stop_grace_s: float = 10.0
    start_limit_s: float = 180.0
    """What is not ready by then hangs: it is killed and started anew. Far above a slow start, which a kill would make slower."""


def server_spec(server: EmbeddedServer) -> ProcessSpec:
    """Prepare an embedded server (its address is known from then on) and say how to keep it alive."""
    launch = server.prepare()
    return ProcessSpec(
        name=server.name,
        argv=launch.argv,
        env=launch.env,
        ready=server.is_ready,
        order=SERVERS,
        stop_signal=launch.death_signal,
        death_signal=launch.death_signal,
        cwd=launch.cwd,
        identity=launch.identity,
    )


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a process that died waits for its next start."""

    first_s: float = 0.5
    most_s: float = 10.0
    settled_after_s: float = 60.0

    def next_s(self, last_s: float, *, uptime_s: float) -> float:
        """Double the last wait up to the most; begin anew after a life of some length. `last_s` is 0 at first."""
        if last_s == 0 or uptime_s >= self.settled_after_s:
            return self.first_s
        return min(2 * last_s, self.most_s)


@dataclass(slots=True)
class _Child:
    """One process through all its lives. Times are on the monotonic clock; `math.inf` is never."""

    spec: ProcessSpec
    log: Path
    tell: Callable[[str, ProcessState], None]
    backoff: Backoff
    state: ProcessState = ProcessState.STOPPED
    process: subprocess.Popen[bytes] | None = None
    ready_fd: int | None = None
    started_at: float = 0.0
    start_at: float = math.inf
    kill_at: float = math.inf
    wait_s: float = 0.0
    early_death_count: int = 0

    def start(self, now: float) -> None:
        self.start_at, self.started_at, self.kill_at = math.inf, now, now + self.spec.start_limit_s
        self._become(ProcessState.STARTING)
        with contextlib.ExitStack() as ours:
            launch, pass_fds = self.spec, list[int]()
            if isinstance(launch.ready, Path):
                launch.ready.unlink(missing_ok=True)
            elif isinstance(launch.ready, Line):
                self.ready_fd, tell = os.pipe()
                ours.callback(os.close, tell)
                launch, pass_fds = replace(launch, env={**launch.env, READY_FD: str(tell)}), [tell]
            try:
                self.process = spawn(launch, log=self.log, pass_fds=pass_fds)
            except OSError as error:
                with self.log.open("a") as log:
                    log.write(f"{launch.argv[0]}: {error.strerror}\n")
                self._die(now)

    def turn(self, now: float) -> None:
        """Do what is due: notice a death or readiness, start again, lose patience."""
        if self.process is None:
            if now >= self.start_at:
                self.start(now)
        elif self.process.poll() is not None:
            self._bury(now)
        elif self.state is ProcessState.STARTING and self._is_ready():
            self.kill_at = math.inf
            self._become(ProcessState.READY)
        elif now >= self.kill_at:
            self.kill()

    def ask_to_stop(self, now: float) -> None:
        self.start_at = math.inf
        if self.process is None:
            if self.state is ProcessState.DIED:
                self._become(ProcessState.STOPPED)
            return
        self.kill_at = now + self.spec.stop_grace_s
        self.process.send_signal(self.spec.stop_signal)
        self._become(ProcessState.STOPPING)

    def kill(self) -> None:
        self.kill_at = -math.inf  # remembers that it was
        self._signal_group(signal.SIGKILL)

    def due_at(self, now: float) -> float:
        """When `turn` has something to do that no signal and no pipe will tell."""
        is_starting = self.process is not None and self.state is ProcessState.STARTING
        asks = is_starting and not isinstance(self.spec.ready, Line)
        return min(self.start_at, math.inf if self.kill_at < 0 else self.kill_at, now + _PROBE_EVERY_S if asks else math.inf)

    def _is_ready(self) -> bool:
        ready = self.spec.ready
        if isinstance(ready, Line):
            return self._has_said_so()
        if isinstance(ready, Path):
            return ready.exists()
        return ready is None or ready()

    def _has_said_so(self) -> bool:
        if self.ready_fd is None or not _readable(self.ready_fd):
            return False
        said = os.read(self.ready_fd, 64)
        self._close_ready_fd()
        return b"\n" in said

    def _bury(self, now: float) -> None:
        self._signal_group(signal.SIGKILL)  # what it started itself must not outlive it
        if self.state is ProcessState.STOPPING:
            self.process = None
            self._close_ready_fd()
            self._become(ProcessState.KILLED if self.kill_at < 0 else ProcessState.STOPPED)
        else:
            self._die(now)

    def _die(self, now: float) -> None:
        self.process = None
        self._close_ready_fd()
        self.early_death_count += self.state is ProcessState.STARTING
        self.wait_s = self.backoff.next_s(self.wait_s, uptime_s=now - self.started_at)
        self.start_at = now + self.wait_s
        self._become(ProcessState.DIED)

    def _signal_group(self, number: signal.Signals) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def _close_ready_fd(self) -> None:
        if self.ready_fd is not None:
            os.close(self.ready_fd)
            self.ready_fd = None

    def _become(self, state: ProcessState) -> None:
        if state is not self.state:
            self.state = state
            self.tell(self.spec.name, state)


def _readable(fd: int) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        return bool(selector.select(0))


class Supervisor:
    """`with Supervisor(specs, ...) as them: them.start(); them.watch()`; the end of the block drains.

    To be used from the main thread, which alone hears signals. SIGINT, SIGTERM and SIGHUP ask it to stop; a second
    one, while it drains, kills what is left.
    """

    def __init__(
        self,
        specs: Sequence[ProcessSpec],
        *,
        log_folder: Path,
        on_change: Callable[[str, ProcessState], None] = lambda name, state: None,
        backoff: Backoff = Backoff(),
    ) -> None:
        self._children = [_Child(spec, log_folder / f"{spec.name}.log", on_change, backoff) for spec in specs]
        self._asked_count = 0
        self._wakeup = _Wakeup(self.ask_to_stop)

    def start(self) -> bool:
        """Start the groups by rising order, each in parallel, and return when all are ready.

        Returns
        -------
        False if it was asked to stop before.

        Raises
        ------
        ProcessNeverReady
            One died again and again on its way.
        """
        for order in sorted({child.spec.order for child in self._children}):
            group = [child for child in self._children if child.spec.order == order]
            for child in group:
                child.start(time.monotonic())
            while not self._asked_count and any(child.state is not ProcessState.READY for child in group):
                _give_up_on(group)
                self._turn()
            if self._asked_count:
                return False
        return True

    def watch(self) -> None:
        """Keep all alive until asked to stop."""
        while not self._asked_count:
            self._turn()

    def ask_to_stop(self) -> None:
        """Ask for the end; may be called from anywhere, `on_change` included."""
        self._asked_count += 1

    def stop(self) -> None:
        """Drain the groups by falling order: a signal, the grace, then force. Stopping twice is fine."""
        asked_before = self._asked_count
        for order in sorted({child.spec.order for child in self._children}, reverse=True):
            group = [child for child in self._children if child.spec.order == order]
            for child in group:
                child.ask_to_stop(time.monotonic())
            while any(child.process for child in group):
                if self._asked_count > asked_before:
                    for child in group:
                        child.kill()
                self._turn()

    def __enter__(self) -> Self:
        """Begin to listen for signals."""
        self._wakeup.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Drain, and leave the signals as they were."""
        try:
            self.stop()
        finally:
            self._wakeup.close()

    def _turn(self) -> None:
        now = time.monotonic()
        due_at = min(child.due_at(now) for child in self._children)
        fds = [child.ready_fd for child in self._children if child.ready_fd is not None]
        self._wakeup.wait(fds, None if due_at == math.inf else max(0.0, due_at - now))
        for child in self._children:
            child.turn(time.monotonic())


def _give_up_on(group: Sequence[_Child]) -> None:
    for child in group:
        if child.early_death_count >= _MOST_DEATHS_AT_START:
            raise ProcessNeverReady(f"{child.spec.name} died {child.early_death_count} times at its start", log=str(child.log))


class _Wakeup:
    """A sleep that a signal ends: a child's death, or the wish to stop."""

    def __init__(self, on_stop: Callable[[], None]) -> None:
        self._on_stop = on_stop
        self._restore = contextlib.ExitStack()
        self._fd = -1

    def open(self) -> None:
        self._fd, write_fd = os.pipe()
        for fd in (self._fd, write_fd):
            os.set_blocking(fd, False)
            self._restore.callback(os.close, fd)
        self._restore.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False))
        self._hear(signal.SIGCHLD, lambda number, frame: None)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                self._hear(number, lambda number, frame: self._on_stop())

    def _hear(self, number: signal.Signals, handler: Callable[[int, FrameType | None], None]) -> None:
        self._restore.callback(signal.signal, number, signal.signal(number, handler))

    def wait(self, fds: Sequence[int], timeout_s: float | None) -> None:
        with selectors.DefaultSelector() as selector:
            for fd in (self._fd, *fds):
                selector.register(fd, selectors.EVENT_READ)
            selector.select(timeout_s)
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, 4096)

    def close(self) -> None:
        self._restore.close()
