"""D4 as a row of the table."""

import shutil
import tempfile
import time
from pathlib import Path

from tests.faults.arena import Row, Tell
from tests.faults.checker import Verdict
from tests.faults.servers import Servers
from tests.faults.tensor_kills import kill_users

KILLS = 200
SAYS = (
    "**D4** counts tensors that were read, not cases: lost are those that vanished before anybody freed them, double those that came"
    " back with other bytes; neither server is part of it."
)


def killed_tensor_users(_servers: Servers, tell: Tell) -> Row:
    """Kill those who write and read tensors; a slot that nobody brings back is a shortfall too."""
    begun = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="secondread-faults-", dir="/dev/shm"))
    try:
        toll = kill_users(folder, kills=KILLS, seed=1, tell=lambda count: tell(count, f"kill {count} of {KILLS}"))
    finally:
        shutil.rmtree(folder)
    verdict = Verdict(
        cases=toll.reads,
        lost=len(toll.vanished),
        double=len(toll.torn),
        late=0,
        unanswered=0,
        failed=0,
        reexecuted=0,
        violations=(),
    )
    short = [f"{len(toll.vanished)} tensors vanished"] if toll.vanished else []
    short += [f"{len(toll.torn)} torn reads"] if toll.torn else []
    short += [f"{toll.left_bytes} bytes never came back"] if toll.left_bytes else []
    short += [] if toll.unfinished else ["no kill struck a write"]
    seconds = time.monotonic() - begun
    return Row("D4", "kill -9 of writers and readers of tensors", toll.kills, verdict, None, {}, 0, seconds, tuple(short))
