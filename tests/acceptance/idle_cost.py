"""`make idle`: what all processes together cost while nothing happens, process by process.

Starts a deployment, lets it settle, and adds up the CPU seconds of everything that it started over some seconds of
idling. Writes build/idle.json; ends with 1 above the bar.
"""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event

import psutil
from rich.console import Console
from rich.table import Table

from pipeline.dicom.phantom import phantom_instance
from pipeline.imaging.phantom import phantom
from tests.acceptance.running import Deployment, running_deployment
from tests.switches import voluntary_switches

MOST_CORES = 0.05
SECONDS = 10.0
SETTLE_S = 5.0
"""For the last of the start: caches that are filled, connections that are opened."""
MIB = 1024 * 1024
REPORT = Path(__file__).resolve().parents[2] / "build" / "idle.json"


@dataclass(frozen=True, slots=True)
class Cost:
    """One process, or several of one kind."""

    name: str
    process_count: int
    cores: float
    wakeups_per_s: float
    """Voluntary context switches: how often it went to sleep again."""
    memory_mib: float
    """Proportional set size: shared pages are shared out."""


@dataclass(frozen=True, slots=True)
class _Reading:
    cpu_s: float
    switches: int


def name_of(process: psutil.Process) -> str:
    """What it is, without numbers, so that several of a kind share a row."""
    command = process.cmdline()
    module = next((part for part in command if part.startswith(("workers.", "pipeline."))), None)
    if module is not None:
        return {"workers.cli.main": "supervisor (secondread up)", "pipeline.dicom.child": "decode children"}.get(module, module)
    return {"valkey-server": "valkey"}.get(process.name(), process.name())


def measure(deployment: Deployment, *, seconds: float) -> list[Cost]:
    """Read every process's counters, wait, and read them again."""
    processes = deployment.all_processes()
    before = {process: _read(process) for process in processes}
    Event().wait(seconds)
    after = {process: _read(process) for process in processes}
    groups: dict[str, list[psutil.Process]] = {}
    for process in processes:
        groups.setdefault(name_of(process), []).append(process)
    costs = [
        Cost(
            name=name,
            process_count=len(group),
            cores=sum(after[each].cpu_s - before[each].cpu_s for each in group) / seconds,
            wakeups_per_s=sum(after[each].switches - before[each].switches for each in group) / seconds,
            memory_mib=sum(each.memory_full_info().pss for each in group) / MIB,
        )
        for name, group in groups.items()
    ]
    return sorted(costs, key=lambda cost: -cost.cores)


def _read(process: psutil.Process) -> _Reading:
    """Add up the threads: /proc/<pid>/schedstat speaks of the first alone, and `cpu_times` in hundredths of a second."""
    threads = list(Path(f"/proc/{process.pid}/task").iterdir())
    cpu_ns = sum(int((thread / "schedstat").read_text(encoding="ascii").split()[0]) for thread in threads)
    return _Reading(cpu_ns / 1e9, sum(voluntary_switches(thread / "status") for thread in threads))


def main() -> int:
    """Run the command; an argument changes the seconds of idling."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    console = Console(width=None if sys.stdout.isatty() else 120)
    with running_deployment() as deployment:
        # Idle means after work, not before the first: lazily loaded parts are there.
        deployment.door.answered(phantom_instance(phantom(0)[0]))
        Event().wait(SETTLE_S)
        costs = measure(deployment, seconds=seconds)
    cores = sum(cost.cores for cost in costs)
    table = Table("process", "count", "cores", "wake-ups/s", "memory MiB", title=f"Idle for {seconds:.0f} s", title_justify="left")
    for cost in costs:
        table.add_row(cost.name, str(cost.process_count), f"{cost.cores:.4f}", f"{cost.wakeups_per_s:.1f}", f"{cost.memory_mib:.0f}")
    table.add_section()
    table.add_row(
        "all",
        str(sum(cost.process_count for cost in costs)),
        f"{cores:.4f}",
        f"{sum(cost.wakeups_per_s for cost in costs):.1f}",
        f"{sum(cost.memory_mib for cost in costs):.0f}",
    )
    console.print(table)
    REPORT.parent.mkdir(exist_ok=True)
    found = {"seconds": seconds, "cores": cores, "most_cores": MOST_CORES, "processes": [asdict(cost) for cost in costs]}
    REPORT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    console.print(f"{cores:.4f} cores; the bar is {MOST_CORES}. {REPORT}", style="green" if cores <= MOST_CORES else "bold red")
    return 0 if cores <= MOST_CORES else 1


if __name__ == "__main__":
    sys.exit(main())
