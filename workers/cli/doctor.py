"""`secondread doctor`: say in sentences what this machine lacks."""

from collections.abc import Iterator
from datetime import UTC, datetime

import httpx
import typer

from workers.access import Access, read_access
from workers.cli.diagnosis.machine import look_at_clock, look_at_ports, look_at_python, look_at_shared_memory, look_at_state_folder
from workers.cli.diagnosis.note import Note
from workers.cli.diagnosis.packages import look_at_extra, requirements
from workers.cli.lazy import MissingExtra, load
from workers.cli.terminal import results
from workers.settings import Settings

MARKS = {"good": "[green]ok     [/green]", "odd": "[yellow]look   [/yellow]", "missing": "[red]missing[/red]"}
ASK_S = 2.0
UP = "`secondread up`"
A_PLACE = "A place that the settings name"


def doctor() -> None:
    """Say what this machine has and lacks for `secondread up`. Exit code 1: something that is needed is missing."""
    console = results()
    is_ill = False
    for note in look_at_everything(Settings()):
        console.print(MARKS[note.level], end=" ")
        console.print(note.sentence, markup=False, soft_wrap=True)
        is_ill = is_ill or note.level == "missing"
    if is_ill:
        raise typer.Exit(1)


def look_at_everything(settings: Settings) -> Iterator[Note]:
    """All there is to say, the quick first."""
    access = read_access(settings.state_dir)
    is_up = access is not None and is_ready(access)
    yield look_at_python()
    yield from _packages(settings)
    yield look_at_shared_memory(settings)
    yield look_at_state_folder(settings)
    yield look_at_clock(datetime.now(UTC))
    yield from look_at_ports(settings, is_up=is_up)
    where = f"runs here: {access.url}" if access and is_up else "does not run here"
    yield Note("good", f"{UP} {where}.")
    yield from _servers(settings)
    yield from _loaded("workers.cli.diagnosis.devices:look_at_torch", settings.device)


def is_ready(access: Access) -> bool:
    """Whether the deployment that left this access answers."""
    try:
        return httpx.get(f"{access.metrics_url}/readyz", timeout=ASK_S, trust_env=False).is_success
    except httpx.HTTPError:
        return False


def _packages(settings: Settings) -> Iterator[Note]:
    asked = requirements()
    if not asked:
        yield Note("odd", "secondread is not installed (a bare checkout?): what it asks for is not known.")
        return
    has_own_servers = settings.redis_url is not None and settings.database_url is not None
    places = (settings.uploads_url or "", *settings.sources.values())
    for extra, needed_for in (
        ("", "Everything"),
        ("server", UP),
        ("inference", UP),
        ("embedded", "" if has_own_servers else UP),
        ("s3", A_PLACE if any(place.startswith("s3:") for place in places) else ""),
        ("http", A_PLACE if any(place.startswith(("http:", "https:")) for place in places) else ""),
    ):
        yield look_at_extra(extra, asked, needed_for=needed_for)


def _servers(settings: Settings) -> Iterator[Note]:
    urls = [url.get_secret_value() if url else None for url in (settings.redis_url, settings.database_url)]
    if None in urls:
        yield Note("good", f"{UP} brings what no URL is set for: {' and '.join(_embedded(settings))}.")
    if any(urls):
        yield from _loaded("workers.cli.diagnosis.servers:look_at_servers", *urls)


def _embedded(settings: Settings) -> Iterator[str]:
    if settings.redis_url is None:
        yield "Valkey"
    if settings.database_url is None:
        yield "PostgreSQL"


def _loaded(target: str, *arguments: str | None) -> Iterator[Note]:
    """A look that needs packages of an extra; where they are missing, that was said already."""
    try:
        look = load(target)
    except MissingExtra:
        return
    yield from look(*arguments)
