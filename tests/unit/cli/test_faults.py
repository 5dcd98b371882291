"""`secondread-faults` runs the harness of a checkout, and says in a sentence where it cannot."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from workers.cli import faults

ROOT = Path(__file__).resolve().parents[3]


def test_the_command_is_installed_under_its_name() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]

    assert scripts["secondread-faults"] == f"{faults.__name__}:{faults.main.__name__}"


def test_arguments_and_the_exit_code_are_handed_on(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["secondread-faults", "--help"])
    assert faults.main() == 0
    assert "--long" in capfd.readouterr().out

    monkeypatch.setattr(sys, "argv", ["secondread-faults", "--only", "no-such-row"])
    assert faults.main() == 2
    assert "no-such-row" in capfd.readouterr().err


def test_without_a_checkout_one_sentence_says_so(tmp_path: Path) -> None:
    # As pip installs it: the packages, and no tests beside them.
    shutil.copytree(ROOT / "workers", tmp_path / "installed" / "workers")
    run = "import sys; from workers.cli.faults import main; sys.exit(main())"

    done = subprocess.run(
        [sys.executable, "-P", "-c", run], env={"PYTHONPATH": str(tmp_path / "installed")}, cwd=tmp_path, capture_output=True, text=True
    )

    assert done.returncode == faults.NOT_RUN
    assert "part of a checkout" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
