"""Fixtures of every test: where the corpus lies, and a clock that stands still."""

from datetime import UTC, datetime
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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the corpus tests where there is no corpus: deselected, counted and said, never quietly skipped."""
    if DESIGN_DATA.is_dir():
        return
    left_out = [item for item in items if item.get_closest_marker("corpus")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
        config.stash[LEFT_OUT] = len(left_out)


LEFT_OUT = pytest.StashKey[int]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say in a sentence what did not run."""
    count = config.stash.get(LEFT_OUT, 0)
    if count:
        terminalreporter.write_line(
            f"Left out: {count} corpus tests, because the folder {DESIGN_DATA.name} is not beside this checkout.", yellow=True
        )
