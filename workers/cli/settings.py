"""`secondread settings`: what can be set, and what is."""

from typing import Annotated

import typer

from workers.cli.terminal import results
from workers.cli.view.settings import SettingGroup, setting_groups, settings_markdown, settings_tables
from workers.settings import ClientSettings, FlowerSettings, Settings


def settings(*, markdown: Annotated[bool, typer.Option("--markdown", help="Print docs/settings.md.")] = False) -> None:
    """Show every setting: variable, type, default, meaning, and the value in force. Secrets are stars."""
    groups = groups_in_force()
    if markdown:
        typer.echo(settings_markdown(groups), nl=False)
        return
    for table in settings_tables(groups):
        results().print(table)


def groups_in_force() -> list[SettingGroup]:
    """Every class of settings, as the environment fills it."""
    return setting_groups(
        {"The server": Settings(), "The command, where it is a client": ClientSettings(), "`secondread flower`": FlowerSettings()}
    )
