"""`secondread flower`: Flower on the queues of this machine's deployment, to look and not to touch."""

import secrets

import typer
from pydantic import SecretStr

from workers.access import read_access
from workers.app import make_app
from workers.cli.terminal import complain, remarks
from workers.settings import FlowerSettings, Settings

MOST_TASKS = 5_000
"""Kept in memory; Flower's own limit is twenty times as many."""
OFFLINE_S = 60
"""After so long a worker that is gone leaves the page."""


def flower() -> None:
    """Start Flower, read-only and behind a password; Ctrl-C ends it. Tasks carry ids, so no patient data is on its pages."""
    settings, asked = Settings(), FlowerSettings()
    access = read_access(settings.state_dir)
    redis_url = settings.redis_url or (SecretStr(access.redis_url) if access and access.redis_url else None)
    if redis_url is None:
        complain("No queues are known here.", "Start everything with `secondread up`, or set SECONDREAD_REDIS_URL.")
        raise typer.Exit(1)
    password = asked.password.get_secret_value() if asked.password else secrets.token_urlsafe(18)
    console = remarks()
    console.print(f"Flower: http://{asked.host}:{asked.port}   user: {asked.user}", soft_wrap=True, markup=False)
    if asked.password is None:
        console.print(f"password, for this run only: {password}", soft_wrap=True, markup=False)
    app = make_app(settings.model_copy(update={"redis_url": redis_url}))
    # Flower asks for itself as well, but five seconds later.
    app.control.enable_events()
    app.start(["--quiet", "flower", *flower_arguments(asked, password)])


def flower_arguments(asked: FlowerSettings, password: str) -> list[str]:
    """The arguments that Flower is started with, in this very process: no other sees them."""
    return [
        f"--address={asked.host}",
        f"--port={asked.port}",
        f"--basic_auth={asked.user}:{password}",
        "--read_only=True",
        f"--max_tasks={MOST_TASKS}",
        f"--purge_offline_workers={OFFLINE_S}",
        "--persistent=False",
        "--logging=warning",
    ]
