"""`secondread-faults`: runs the faults harness of the checkout that this installation belongs to."""

import importlib.util
import subprocess
import sys
from pathlib import Path

from workers.cli.terminal import complain

HARNESS = Path("tests", "faults", "__main__.py")
NOT_RUN = 2
"""Exit code where there is nothing to run."""


def find_checkout() -> Path | None:
    """The folder that holds the harness: where this package lies, as after an editable installation, or where the caller stands."""
    places = (Path(__file__).resolve().parents[2], Path.cwd())
    return next((place for place in places if (place / HARNESS).is_file()), None)


def main() -> int:
    """Hand everything on to `python -m tests.faults`; its exit code is ours."""
    checkout = find_checkout()
    if checkout is None:
        complain("The faults harness is part of a checkout of secondread, and there is none here: clone it and call this from its folder.")
        return NOT_RUN
    if importlib.util.find_spec("psutil") is None:
        complain("The faults harness needs the development tools: pip install 'secondread[dev]', or `make setup-dev` in the checkout.")
        return NOT_RUN
    return subprocess.run([sys.executable, "-m", "tests.faults", *sys.argv[1:]], cwd=checkout, check=False).returncode
