"""Which door the command knocks at, and how it says that nobody opened."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from workers.access import read_access
from workers.cli.terminal import complain
from workers.client import Client, ClientError, ProblemError, Unreachable
from workers.settings import ClientSettings

UrlOption = Annotated[str | None, typer.Option("--url", help="The HTTP door. By default SECONDREAD_URL, else this machine's own.")]
KeyOption = Annotated[str | None, typer.Option("--key", help="The API key. By default SECONDREAD_API_KEY, else this machine's own.")]

START = "Start everything on this machine with `secondread up`, or name another door with --url and --key."


class NoDoor(ClientError):
    """No address, or no key for it."""


@contextmanager
def at_the_door(url: str | None, key: str | None) -> Iterator[Client]:
    """Use the client in a block; what the door refuses becomes a sentence and exit code 1."""
    try:
        with open_client(url, key) as client:
            yield client
    except ProblemError as problem:
        complain(f"{problem.title}.", f"{_more(problem)}{problem.advice}")
        raise typer.Exit(1) from problem
    except Unreachable as error:
        complain(f"Nobody answers at {error.url}.", START)
        raise typer.Exit(1) from error
    except NoDoor as error:
        complain(str(error), START)
        raise typer.Exit(1) from error


def open_client(url: str | None, key: str | None) -> Client:
    """Find address and key: the options, the environment, then what `secondread up` left.

    Raises
    ------
    NoDoor
        One of them is not to be found.
    """
    settings = ClientSettings()
    access = read_access(settings.state_dir)
    asked_url = url or settings.url
    asked_key = key or (settings.api_key.get_secret_value() if settings.api_key else None)
    if access is not None and (asked_url is None or asked_url.rstrip("/") == access.url):
        return Client(access.url, asked_key or access.api_key)
    if asked_url is None:
        raise NoDoor("No door is known: none was named, and `secondread up` has not run here.")
    if asked_key is None:
        # This machine's own key is for this machine's own door: a stranger's would learn it.
        raise NoDoor(f"No API key for {asked_url} was named.")
    return Client(asked_url, asked_key)


def _more(problem: ProblemError) -> str:
    said = [problem.detail] if problem.detail not in {"", problem.title} else []
    said += [f"{each.pointer}: {each.message}" for each in problem.errors]
    return "".join(f"{sentence.rstrip('.').capitalize()}. " for sentence in said)
