"""How often a thread went to sleep, as Linux counts it: what a needless wake-up costs shows here, whatever else the machine does."""

import threading
from pathlib import Path


def voluntary_switches(status: Path) -> int:
    """Read the count from a thread's `/proc/<pid>/task/<tid>/status`."""
    lines = status.read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


def switches_of(thread: threading.Thread) -> int:
    """The count of a thread of this process."""
    return voluntary_switches(Path(f"/proc/self/task/{thread.native_id}/status"))
