"""`secondread up` whose workers' wall clocks can be set while they run: `python -m tests.acceptance.jumping_up up`.

Each worker reads the seconds by which its clock is off from a file of its own, named for its module, in `JUMPS_DIR`. The servers keep
the true time, and so does the monotonic clock of all.
"""

import importlib.util
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from workers import supervisor
from workers.cli.main import main
from workers.embedded.process import Launch, spawn

JUMPS_DIR = "SECONDREAD_TEST_JUMPS_DIR"


def faketime_library() -> Path | None:
    """The library that tells a process another time; None where it is not installed."""
    package = importlib.util.find_spec("libfaketime")
    places = package.submodule_search_locations if package else None
    return Path(places[0]) / "vendor" / "libfaketime" / "src" / "libfaketime.so.1" if places else None


def set_clock(folder: Path, module: str, off_s: float) -> None:
    """Let the clock of a worker's processes be off by so many seconds, within a second."""
    # In one step: a process that reads half a file would have yet another time.
    whole = folder / f"{module}.new"
    whole.write_text(f"{off_s:+.0f}\n")
    whole.replace(folder / module)


def _spawn_with_clock(launch: Launch, **options: Any) -> "subprocess.Popen[bytes]":
    is_worker = launch.argv[1:2] == ("-m",) and launch.argv[2].startswith("workers.")
    return spawn(replace(launch, env={**launch.env, **_clock_of(launch.argv[2])}) if is_worker else launch, **options)


def _clock_of(module: str) -> dict[str, str]:
    folder, name = Path(os.environ[JUMPS_DIR]), module.removeprefix("workers.")
    if not (folder / name).exists():
        set_clock(folder, name, 0.0)
    return {
        "LD_PRELOAD": str(faketime_library()),
        "FAKETIME_TIMESTAMP_FILE": str(folder / name),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


if __name__ == "__main__":
    supervisor.spawn = _spawn_with_clock  # type: ignore[attr-defined]
    main()
