from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from workers.settings import ClientSettings, FlowerSettings, Settings

PAGE = Path(__file__).resolve().parents[3] / "docs" / "settings.md"


def test_the_page_is_what_the_command_prints(secondread: Callable[..., Result]) -> None:
    assert secondread("settings", "--markdown").stdout == PAGE.read_text(), "run: secondread settings --markdown > docs/settings.md"


def test_the_page_does_not_depend_on_what_is_set(secondread: Callable[..., Result]) -> None:
    assert secondread("settings", "--markdown", SECONDREAD_DEADLINE_S="7").stdout == PAGE.read_text()


@pytest.mark.parametrize("kind", [Settings, ClientSettings, FlowerSettings])
def test_every_setting_has_a_meaning(kind: type[Settings]) -> None:
    assert all(field.description for field in kind.model_fields.values())


def test_the_value_in_force_is_shown(secondread: Callable[..., Result]) -> None:
    line = next(each for each in secondread("settings", SECONDREAD_DEADLINE_S="12.5").stdout.splitlines() if "DEADLINE_S" in each)
    assert line.split()[-2:] == ["30", "12.5"]


def test_no_secret_is_shown(secondread: Callable[..., Result]) -> None:
    shown = secondread(
        "settings",
        SECONDREAD_REDIS_URL="redis://:hidden1@h/0",
        SECONDREAD_DATABASE_URL="postgresql://u:hidden2@h/d",
        SECONDREAD_API_KEY="hidden3",
        SECONDREAD_FLOWER_PASSWORD="hidden4",
        SECONDREAD_UPLOADS_URL="ftp://u:hidden5@h/x",
        SECONDREAD_SOURCES='{"a": "ftp://u:hidden6@h/x"}',
    )
    assert shown.exit_code == 0
    assert "hidden" not in shown.output


def test_the_tables_fit_a_hundred_columns(secondread: Callable[..., Result]) -> None:
    assert max(map(len, secondread("settings").stdout.splitlines())) <= 100
