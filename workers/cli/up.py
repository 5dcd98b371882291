"""`secondread up`: everything on this machine, until Ctrl-C."""

import typer
from rich.markup import escape

from pipeline.errors import SecondreadError
from workers.cli.terminal import remarks
from workers.deployment import deployment
from workers.settings import Settings
from workers.supervisor import ProcessState

MARKS = {
    ProcessState.STARTING: "[dim]starting[/dim]",
    ProcessState.READY: "[green]ready[/green]",
    ProcessState.DIED: "[red]died, starting again[/red]",
    ProcessState.STOPPING: "[dim]draining[/dim]",
    ProcessState.STOPPED: "[dim]stopped[/dim]",
    ProcessState.KILLED: "[yellow]killed: it had not stopped in time[/yellow]",
}


def up() -> None:
    """Start all processes (and our own Valkey and PostgreSQL where no URL is set); Ctrl-C drains and stops."""
    console = remarks()

    def progress(name: str, state: ProcessState) -> None:
        console.print(f"  {name:<14} {MARKS[state]}", soft_wrap=True)

    try:
        with deployment(Settings(), progress) as running:
            if not running.start() or running.access is None:
                return
            for warning in running.warnings:
                console.print(f"[yellow]{warning}[/yellow]")
            console.print(f"secondread is up: {running.access.url} (documentation at {running.access.url}/docs)", soft_wrap=True)
            console.print(f"metrics and health: {running.access.metrics_url}   logs: {running.logs}", soft_wrap=True)
            console.print("Ctrl-C drains and stops.")
            running.watch()
    except SecondreadError as error:
        console.print(f"[red]{error.title}.[/red] {escape(str(error))}\n{error.advice}", soft_wrap=True)
        raise typer.Exit(1) from error
