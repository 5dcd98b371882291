"""Processes that are born in a tenth of a second: forked by a server that has everything loaded and nothing opened."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from pipeline.flow import Pool
from schemas.message import MOST_CASES
from tests.faults.servers import Place
from tests.faults.stub_stages import Manner, serve_pool
from workers import guard, sweeper
from workers.settings import TUNED_VARIABLES

POOLS = (Pool.INTAKE, Pool.INFERENCE, Pool.REPORTING)
BESIDE = {"sweeper": sweeper.main, "guard": guard.main}
"""The product's processes beside the flow."""
READY_LIMIT_S = 60.0
LOOK_EVERY_S = 0.01

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.faults.processes", "tests.faults.load", "tests.faults.control"])


def spawn(target: Callable[..., object], *arguments: Any, environment: Mapping[str, str], log: Path) -> BaseProcess:
    """Start a process that knows only these settings, writes to this log, and ends when we do."""
    process = CONTEXT.Process(target=_live, args=(target, arguments, dict(environment), log), daemon=False)
    process.start()
    return process


def _live(target: Callable[..., object], arguments: tuple[Any, ...], environment: dict[str, str], log: Path) -> None:
    os.environ.update(TUNED_VARIABLES | environment)
    sink = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    threading.Thread(target=_die_with_parent, name="lifeline", daemon=True).start()
    target(*arguments)


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class WorkerGroup:
    """The three pools of one worker machine, and what is started beside them."""

    def __init__(self, place: Place, manner: Manner, *, name: str = "group") -> None:
        self._place, self._manner, self._name = place, manner, name
        self._pools: dict[str, BaseProcess] = {}
        self._beside: dict[str, BaseProcess] = {}
        self.exits = 0
        """Processes that ended though nobody killed them, and were started again."""

    @property
    def in_hand(self) -> int:
        """Most cases that the group can have claimed at one moment: its concurrency."""
        return 16 + 2 * self._manner.threads * MOST_CASES

    @property
    def pids(self) -> dict[str, int]:
        """The processes that were started, by name."""
        return {name: process.pid for name, process in (self._pools | self._beside).items() if process.pid is not None}

    def log_of(self, name: str) -> Path:
        """What a pool, the sweeper or the guard has logged."""
        return self._place.folder / f"{self._name}-{name}.log"

    def start(self, *pools: Pool) -> None:
        """Start the pools (all three where none is named) and wait until they consume."""
        awaited: list[tuple[BaseProcess, Path]] = []
        for pool in pools or POOLS:
            process, ready = self._spawn(pool.value, serve_pool, pool, self._manner)
            self._pools[pool.value] = process
            awaited.append((process, ready))
        for process, ready in awaited:
            await_ready(process, ready)

    def start_sweeper(self) -> None:
        """Start the product's sweeper."""
        self._start_beside("sweeper")

    def start_guard(self) -> None:
        """Start the product's guard."""
        self._start_beside("guard")

    def mend(self) -> None:
        """Start again what ended by itself, as the product's supervisor does."""
        for pool in POOLS:
            process = self._pools.get(pool.value)
            if process is not None and process.exitcode is not None:
                self.exits += 1
                self._pools[pool.value], _ = self._spawn(pool.value, serve_pool, pool, self._manner)
        for name, process in list(self._beside.items()):
            if process.exitcode is not None:
                self.exits += 1
                self._beside[name], _ = self._spawn(name, BESIDE[name])

    def kill(self) -> None:
        """`kill -9` all pools at once."""
        for process in self._pools.values():
            process.kill()
        for process in self._pools.values():
            process.join()
        self._pools.clear()

    def kill_sweeper(self) -> None:
        """`kill -9` the sweeper."""
        self._kill_beside("sweeper")

    def signal(self, pool: Pool, number: signal.Signals) -> None:
        """Send a signal to one pool."""
        os.kill(self._pools[pool.value].pid or 0, number)

    def close(self) -> None:
        """End everything."""
        self.kill()
        for name in list(self._beside):
            self._kill_beside(name)

    def _start_beside(self, name: str) -> None:
        self._beside[name], ready = self._spawn(name, BESIDE[name])
        await_ready(self._beside[name], ready)

    def _kill_beside(self, name: str) -> None:
        process = self._beside.pop(name, None)
        if process is not None:
            process.kill()
            process.join()

    def _spawn(self, name: str, target: Callable[..., object], *arguments: Any) -> tuple[BaseProcess, Path]:
        return begin(self._place, f"{self._name}-{name}", target, *arguments)


def begin(place: Place, name: str, target: Callable[..., object], *arguments: Any) -> tuple[BaseProcess, Path]:
    """Start a process of a place; the file is there once it works (see `await_ready`)."""
    ready = place.folder / f"{name}.ready"
    ready.unlink(missing_ok=True)
    environment = place.environment() | {"SECONDREAD_READY_FILE": str(ready)}
    return spawn(target, *arguments, environment=environment, log=place.folder / f"{name}.log"), ready


def await_ready(process: BaseProcess, ready: Path) -> None:
    """Wait until a process works.

    Raises
    ------
    RuntimeError
        It ended instead, or takes too long.
    """
    until = time.monotonic() + READY_LIMIT_S
    while not ready.exists():
        if process.exitcode is not None or time.monotonic() > until:
            raise RuntimeError(f"a process did not start; see {ready.with_suffix('.log')}")
        time.sleep(LOOK_EVERY_S)
