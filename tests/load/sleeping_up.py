"""`secondread up` whose inference processes have a sleeping network to choose from: `python -m tests.load.sleeping_up up`."""

import subprocess
from dataclasses import replace
from typing import Any

from workers import supervisor
from workers.cli.main import main
from workers.embedded.process import Launch, spawn

OURS, THEIRS = "tests.load.sleeping", "workers.inference"


def _spawn(launch: Launch, **options: Any) -> "subprocess.Popen[bytes]":
    argv = tuple(OURS if part == THEIRS else part for part in launch.argv)
    return spawn(replace(launch, argv=argv), **options)


if __name__ == "__main__":
    supervisor.spawn = _spawn  # type: ignore[attr-defined]
    main()
