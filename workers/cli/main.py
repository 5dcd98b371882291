"""`secondread`: one command, a module a subcommand."""

import typer

from workers.cli.up import up

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Reads a medical image a second time, by AI, within the deadline.")
app.command()(up)


@app.callback()
def _secondread() -> None:
    """Keep subcommands even while there is only one."""


def main() -> None:
    """Run the command."""
    app()


if __name__ == "__main__":
    main()
