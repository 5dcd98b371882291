"""`secondread up`: everything on this machine, until Ctrl-C."""

import typer
from rich.console import Console

from pipeline.errors import SecondreadError
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
    console = Console(stderr=True)

    def progress(name: str, state: ProcessState) -> None:
        console.print(f"  {name:<14} {MARKS[state]}", highlight=False)

    try:
        with deployment(Settings(), progress) as running:
            if not running.start() or running.access is None:
                return
            for warning in running.warnings:
                console.print(f"[yellow]{warning}[/yellow]")
            console.print(f"secondread is up: {running.access.url} (documentation at {running.access.url}/docs)", highlight=False)
            console.print(f"metrics and health: {running.access.metrics_url}   logs: {running.logs}", highlight=False)
            console.print("Ctrl-C drains and stops.")
            running.watch()
    except SecondreadError as error:
        console.print(f"[red]{error.title}.[/red] {error}\n{error.advice}", highlight=False)
        raise typer.Exit(1) from error
