"""Fixtures of every test: where the corpus lies, and a clock that stands still."""

from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

DESIGN_DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "dicom"


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of real and broken DICOM files."""
    return DESIGN_DATA


@pytest.fixture
def noon() -> datetime:
    """A moment, for rules that are told the time."""
    return datetime(2026, 1, 2, 12, 0, tzinfo=UTC)


def sees_cuda() -> bool:
    """Whether torch finds a CUDA device. Torch is loaded for the question, so only sessions with such tests ask it."""
    return bool(import_module("torch").cuda.is_available())


NEEDED: dict[str, tuple[Callable[[], bool], str]] = {
    "corpus": (DESIGN_DATA.is_dir, f"the folder {DESIGN_DATA.name} is not beside this checkout"),
    "cuda": (sees_cuda, "torch sees no CUDA device here: what they prove of the device path is unproven on this machine"),
    "faketime": (lambda: find_spec("libfaketime") is not None, "libfaketime, which sets the clocks of processes, is not installed"),
}
"""What the tests of a marker need: how to know that it is there, and what is said where it is not."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests whose need is not met: deselected, counted and said, never quietly skipped."""
    config.stash[LEFT_OUT] = {}
    for marker, (is_there, _) in NEEDED.items():
        left_out = [item for item in items if item.get_closest_marker(marker)]
        if left_out and not is_there():
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item not in left_out]
            config.stash[LEFT_OUT][marker] = len(left_out)


LEFT_OUT = pytest.StashKey[dict[str, int]]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say in a sentence what did not run."""
    for marker, count in config.stash.get(LEFT_OUT, {}).items():
        terminalreporter.write_line(f"Left out: {count} {marker} tests, because {NEEDED[marker][1]}.", yellow=True)
