import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.services


@pytest.fixture
def reachable_folder() -> Iterator[Path]:
    """A folder that the servers' user can reach: pytest's own are closed to everybody but us."""
    folder = Path(tempfile.mkdtemp(prefix="secondread-tests-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


def test_the_demonstration_checks_everything_and_leaves_nothing_running(reachable_folder: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SECONDREAD_STATE_DIR": str(reachable_folder)}
    ended = subprocess.run(
        [sys.executable, "-m", "workers.cli.main", "demo", "--keep", str(kept)], env=environment, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "5 of 5 studies are as they must be" in ended.stdout
    assert ended.stdout.count("signature ok") == 5
    assert len(list(kept.glob("*/overlay-1.png"))) == 4
    assert len(list(kept.glob("*/report.json"))) == 5
    assert max(map(len, ended.stdout.splitlines())) <= 100 + len(str(kept))
    left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(reachable_folder) not in left
