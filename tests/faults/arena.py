"""One run: servers, workers, a load, a history; and the row of the table that comes of it."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TypeVar

from tests.faults.checker import Seen, Verdict, check
from tests.faults.history import read_history
from tests.faults.load import Load, submit_all
from tests.faults.observe import Watcher, republished
from tests.faults.processes import WorkerGroup, spawn
from tests.faults.put_off import release_put_off
from tests.faults.servers import Place, Servers
from tests.faults.stub_stages import Manner
from tests.faults.wires import Wires

LOOK_EVERY_S = 0.03
STILL_S = 45.0
"""Without any progress for so long the run is over: what is open now is lost."""
NO_SOURCES: Mapping[str, str] = {}

Asked = TypeVar("Asked")
Tell = Callable[[int, str], None]
"""Hears how many cases have their result, and what is going on."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    fault: str
    what: str
    times: int
    verdict: Verdict
    recovered_s: float | None
    republished: dict[str, int]
    """Doorbells that the sweeper has sent again, by pool and cause."""
    exits: int
    """Worker processes that ended though nobody killed them, and were started again."""
    seconds: float
    shortfalls: tuple[str, ...]


@dataclass
class Arena:
    """What a fault's story works with."""

    servers: Servers
    place: Place
    load: Load
    group: WorkerGroup
    watcher: Watcher
    tell: Tell
    begun: float = field(default_factory=time.monotonic)
    strikes: list[float] = field(default_factory=list)
    _loads: list[BaseProcess] = field(default_factory=list)

    @property
    def history(self) -> Path:
        """Where every load process notes what its client saw."""
        return self.place.folder / "history.jsonl"

    def submit(self, load: Load | None = None) -> None:
        """Start the load process."""
        self.start_load(submit_all, load or self.load)

    def start_load(self, how: Callable[[Asked, Path, Path], None], asked: Asked) -> BaseProcess:
        """Start a load process; it is told what is asked, where the history is and which file stops it."""
        arguments = (asked, self.history, self.place.folder / "stop")
        process = spawn(how, *arguments, environment=self.place.environment(), log=self.place.folder / "load.log")
        self._loads.append(process)
        return process

    def stop_submitting(self) -> None:
        """Let the load end before its count is full."""
        (self.place.folder / "stop").touch()

    def await_submitted(self) -> None:
        """Wait for the load to end, as it must."""
        for process in self._loads:
            process.join()
            if process.exitcode != 0:
                raise RuntimeError(f"the load ended with {process.exitcode}: {(self.place.folder / 'load.log').read_text()[-2000:]}")

    def until(self, holds: Callable[[int], bool], saying: str, *, limit_s: float = STILL_S) -> bool:
        """Look until it holds, told how many cases have their result; False where nothing has moved for too long."""
        moved_at, before = time.monotonic(), -1
        while True:
            self.group.mend()
            completed = self.watcher.completed()
            self.tell(completed, saying)
            if holds(completed):
                return True
            if completed != before:
                moved_at, before = time.monotonic(), completed
            if time.monotonic() - moved_at > limit_s:
                return False
            time.sleep(LOOK_EVERY_S)

    def drain(self) -> None:
        """Wait until every case has ended, or nothing moves any more."""
        self.until(lambda _: not any(each.is_alive() for each in self._loads), "submitting")
        self.await_submitted()
        self.until(lambda _: self.watcher.open_count() == 0, "draining")

    def judge(self, *, most_reexecuted: int | None = None) -> tuple[Verdict, Seen]:
        """Check everything."""
        seen = self.watcher.seen()
        return check(read_history(self.history), seen, most_reexecuted=most_reexecuted), seen

    def row(self, fault: str, what: str, verdict: Verdict, *, recovered_s: float | None, shortfalls: Sequence[str] = ()) -> Row:
        """Make the line of the table: an invariant that does not hold is a shortfall whatever else was asked."""
        again = republished(self.group.log_of("sweeper"))
        broken = Counter(violation.invariant for violation in verdict.violations)
        said = [f"{invariant} broken {count} times" for invariant, count in sorted(broken.items())]
        said += [f"{verdict.failed} cases failed although nothing was wrong with them"] if verdict.failed else []
        most = len(self.strikes) // 20
        said += [f"{verdict.quarantined} cases quarantined, more than {most}"] if verdict.quarantined > most else []
        seconds = time.monotonic() - self.begun
        return Row(fault, what, len(self.strikes), verdict, recovered_s, again, self.group.exits, seconds, (*said, *shortfalls))


@contextmanager
def arena(
    servers: Servers,
    name: str,
    load: Load,
    manner: Manner,
    tell: Tell,
    *,
    wires: Wires | None = None,
    sources: Mapping[str, str] = NO_SOURCES,
) -> Iterator[Arena]:
    """An empty ledger, no worker yet; everything is ended afterwards.

    With `wires` the load and the workers reach the servers through proxies; whoever watches does not.
    """
    fresh = replace(servers.fresh(name), sources=sources)
    place = wires.through(fresh) if wires else fresh
    group, watcher = WorkerGroup(place, manner), Watcher(fresh.database_url)
    made = Arena(servers, place, load, group, watcher, tell)
    releaser = spawn(release_put_off, environment=place.environment(), log=place.folder / "releaser.log")
    try:
        yield made
    finally:
        made.stop_submitting()
        group.close()
        releaser.kill()
        releaser.join()
        for process in made._loads:
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()
        watcher.close()


def slower_than(limit_s: float, measured_s: float | None, what: str) -> list[str]:
    """The shortfall of a time that must not be longer."""
    if measured_s is None or measured_s > limit_s:
        return [f"{what} took {'for ever' if measured_s is None else f'{measured_s:.1f} s'}, bar {limit_s:.0f} s"]
    return []
