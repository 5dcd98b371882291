import os
import subprocess
import sys
from pathlib import Path

import pytest


def run(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **variables}
    return subprocess.run([sys.executable, "-m", "workers.cli.main", *arguments], env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("variable", "value"),
    [("SECONDREAD_DEADLINE_S", "-1"), ("SECONDREAD_FLOWER_PORT", "no-number"), ("SECONDREAD_SOURCES", "{no json")],
)
def test_a_setting_that_is_wrong_is_named_without_its_value(variable: str, value: str, tmp_path: Path) -> None:
    ended = run("settings", SECONDREAD_STATE_DIR=str(tmp_path), **{variable: value})
    assert ended.returncode == 2
    assert variable.removeprefix("SECONDREAD_").lower().removeprefix("flower_") in ended.stderr.lower()
    assert "docs/settings.md" in ended.stderr
    assert value not in ended.stderr
    assert "Traceback" not in ended.stderr


def test_settings_that_contradict_each_other_are_told(tmp_path: Path) -> None:
    ended = run("settings", SECONDREAD_STATE_DIR=str(tmp_path), SECONDREAD_DEADLINE_S="1")
    assert ended.returncode == 2
    assert "SECONDREAD_BATCH_WINDOW_S must be below SECONDREAD_DEADLINE_S" in ended.stderr


def test_without_a_terminal_there_are_no_colours(tmp_path: Path) -> None:
    assert "\x1b" not in run("settings", SECONDREAD_STATE_DIR=str(tmp_path)).stdout
