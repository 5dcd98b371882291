import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from workers.cli.lazy import MissingExtra, load
from workers.cli.main import COMMANDS

HEAVY = {"celery", "sqlalchemy", "torch", "numpy", "redis", "pydicom", "fastapi", "psycopg2", "PIL", "skimage", "scipy", "kombu", "alembic"}
OF_THE_CLIENT = ("submit", "show", "list", "cancel", "settings", "doctor")


def loaded_after(*modules: str) -> set[str]:
    program = f"import importlib, sys\nfor each in {modules!r}: importlib.import_module(each)\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_the_client_and_its_commands_load_nothing_of_the_server() -> None:
    modules = [COMMANDS[name].target.partition(":")[0] for name in OF_THE_CLIENT]
    assert loaded_after("workers.client", "workers.cli.main", *modules) & HEAVY == set()


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_every_command_of_the_table_is_there(command: object) -> None:
    module, _, function = command.target.partition(":")  # type: ignore[attr-defined]
    assert callable(getattr(importlib.import_module(module), function))


def test_the_list_of_commands_says_what_each_does(secondread: Callable[..., Result]) -> None:
    shown = secondread("--help")
    assert shown.exit_code == 0
    assert all(name in shown.output for name in COMMANDS)


def test_a_typing_error_is_answered_with_the_nearest_command(secondread: Callable[..., Result]) -> None:
    answered = secondread("sumbit")
    assert answered.exit_code == 2
    assert "'submit'" in answered.output


def test_a_command_shows_its_own_options(secondread: Callable[..., Result]) -> None:
    assert "--study-per-case" in secondread("submit", "--help").output


def test_a_missing_package_is_named_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needs_more.py").write_text("import no_such_package.part\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MissingExtra, match=r"`no_such_package`.*pip install"):
        load("needs_more:function")


def test_a_missing_module_of_our_own_is_a_bug_and_stays_one() -> None:
    with pytest.raises(ModuleNotFoundError):
        load("workers.cli.no_such_command:function")
