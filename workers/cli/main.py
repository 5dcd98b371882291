"""`secondread`: one command, a module a subcommand, each imported when it is called."""

import sys

import typer
from pydantic import ValidationError
from pydantic_settings import SettingsError

from workers.cli.lazy import LazyCommand, MissingExtra, lazy_group, list_commands
from workers.cli.terminal import complain
from workers.settings import ClientSettings, FlowerSettings, Settings

COMMANDS = {
    "demo": LazyCommand("workers.cli.demo:demo", "Start everything, read four made-up studies and a real CT, check every answer, stop."),
    "up": LazyCommand("workers.cli.up:up", "Start everything on this machine; Ctrl-C drains and stops."),
    "submit": LazyCommand("workers.cli.submit:submit", "Send DICOM files and show the findings."),
    "show": LazyCommand("workers.cli.show:show", "Show a case: findings, where the time went, callbacks."),
    "list": LazyCommand("workers.cli.list:list_cases", "List cases, newest first."),
    "cancel": LazyCommand("workers.cli.cancel:cancel", "End a case that needs no answer any more."),
    "compensation": LazyCommand("workers.cli.compensation:compensation", "List put-off cases; retry or close one."),
    "profile": LazyCommand("workers.cli.profile:profile", "Measure a model on a device: operations, layers, batch sizes, the knee."),
    "models": LazyCommand("workers.cli.models:models", "List, add, check, switch and roll back model versions."),
    "settings": LazyCommand("workers.cli.settings:settings", "Show every setting, its meaning, and the value in force."),
    "problems": LazyCommand("workers.cli.problems:problems", "Explain the codes of refusals and failures."),
    "doctor": LazyCommand("workers.cli.doctor:doctor", "Say in sentences what this machine lacks."),
    "simulate": LazyCommand("workers.cli.simulate:simulate", "Play the batching rule beside others, in virtual time, against its bars."),
    "flower": LazyCommand("workers.cli.flower:flower", "Show workers, queues and tasks in the browser, read-only."),
}

USAGE = 2
"""Exit code of a command that was called wrongly."""

EXPLAINED = "docs/settings.md explains every setting."
PREFIXES = {kind.__name__: str(kind.model_config.get("env_prefix")) for kind in (Settings, ClientSettings, FlowerSettings)}

app = typer.Typer(
    cls=lazy_group(COMMANDS),
    no_args_is_help=True,
    add_completion=False,
    # Local variables hold keys.
    pretty_exceptions_show_locals=False,
    help="Reads a medical image a second time, by AI, within the deadline. Not for clinical use.",
)
list_commands(app, COMMANDS)


@app.callback()
def _secondread() -> None:
    """Nothing is common to all commands."""


def main() -> None:
    """Run the command."""
    try:
        app()
    except MissingExtra as error:
        complain(str(error))
        sys.exit(1)
    except ValidationError as error:
        if error.title not in PREFIXES:
            raise
        for each in error.errors():
            # The values are not repeated: one of them may be a secret.
            variable = "".join((PREFIXES[error.title], "_".join(map(str, each["loc"])))).upper() if each["loc"] else "The settings"
            complain(f"{variable}: {each['msg']}.", EXPLAINED)
        sys.exit(USAGE)
    except SettingsError as error:
        complain(f"A setting cannot be read: {error}. Lists and objects are written as JSON.", EXPLAINED)
        sys.exit(USAGE)


if __name__ == "__main__":
    main()
