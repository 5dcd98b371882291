"""Commands that are loaded when they run: `secondread submit` needs none of the server's packages."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperGroup

OUR_PACKAGES = ("workers", "pipeline", "schemas", "migrations")


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """One subcommand: where its function is, and what the list of commands says of it."""

    target: str
    """`module:function`"""
    help: str


class MissingExtra(Exception):
    """A command needs a package that is not installed."""

    def __init__(self, package: str) -> None:
        super().__init__(f"The package `{package}` is not installed, and this needs it: pip install 'secondread[cpu]'")


def load(target: str) -> Callable[..., Any]:
    """Import the module of `module:function` and give its function.

    Raises
    ------
    MissingExtra
        The module needs a package of an extra that is not installed.
    """
    module, _, function = target.partition(":")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in OUR_PACKAGES:
            raise
        raise MissingExtra(package) from error
    return found


class LazyGroup(TyperGroup):
    """Lists its commands from the table alone, and imports the one that is called."""

    table: Mapping[str, LazyCommand] = {}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Put the real command in the place of the listed one."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, self._loaded(name) if name and name in self.table else listed, rest

    def _loaded(self, name: str) -> Any:
        single = typer.Typer(add_completion=False, context_settings={"max_content_width": 100})
        single.command(name)(load(self.table[name].target))
        return typer.main.get_command(single)


def lazy_group(table: Mapping[str, LazyCommand]) -> type[LazyGroup]:
    """Make the group class of one table."""
    return type("Commands", (LazyGroup,), {"table": table})


def list_commands(app: typer.Typer, table: Mapping[str, LazyCommand]) -> None:
    """Register every command of the table by its name and sentence."""
    for name, command in table.items():
        app.command(name, help=command.help)(_listed)


def _listed() -> None:
    """Stand for a command that is not loaded yet."""
