"""A folder as open as `/var/lib`: those of pytest are closed to everybody but us."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may pass."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)
