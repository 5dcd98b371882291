"""`secondread models`: which versions there are, which of them serve, and what an operator does about it."""

import getpass
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer
from pydantic import SecretStr

from pipeline.errors import SecondreadError
from pipeline.inference.card import survey
from pipeline.inference.install import install
from pipeline.inference.shelf import CardShelf
from pipeline.persistence.ledger.engine import Ledger, open_ledger
from pipeline.persistence.ledger.models import live_reports, read_plans
from workers.access import read_access
from workers.cli.lazy import load
from workers.cli.terminal import complain, remarks, results
from workers.cli.view.models import measured_table, models_table, plan_text
from workers.settings import Settings
from workers.switching import Operator, Wish
from workers.wiring import models_dir

Act = Literal["list", "add", "check", "switch", "rollback"]
WANTS = {"add": "FOLDER", "check": "FOLDER", "switch": "NAME VERSION", "rollback": "NAME"}
USAGE = 2

ShareOption = Annotated[float | None, typer.Option(min=0.0001, max=0.9999, help="Let it answer only this share of the cases, as 0.05.")]
ShadowOption = Annotated[
    bool, typer.Option("--shadow", help="Let it read on idle capacity beside the one that answers, and answer nobody.")
]


def models(
    act: Annotated[Act, typer.Argument(help="list; add or check a FOLDER; switch NAME VERSION; rollback NAME.")] = "list",
    what: Annotated[list[str] | None, typer.Argument(metavar="[FOLDER | NAME [VERSION]]")] = None,
    *,
    share: ShareOption = None,
    shadow: ShadowOption = False,
) -> None:
    """List model versions, bring one, check one, let one answer (all cases, a share, or none: as a shadow), or go back."""
    given = what or []
    if len(given) != len(WANTS.get(act, "").split()):
        complain(f"secondread models {act} {WANTS.get(act, '')}".rstrip() + " is how it is called.")
        raise typer.Exit(USAGE)
    try:
        _do(act, given, share=share, is_shadow=shadow)
    except SecondreadError as error:
        complain(f"{error.title}: {error} ({error.code}).", error.advice)
        raise typer.Exit(1) from error


def _do(act: Act, given: list[str], *, share: float | None, is_shadow: bool) -> None:
    settings = _settings()
    if act == "check":
        _check(Path(given[0]), settings)
    elif act == "add":
        if settings.models_dir is None:
            complain("No folder for models is set: SECONDREAD_MODELS_DIR names it.", "docs/models.md says how to begin.")
            raise typer.Exit(1)
        _check(Path(given[0]), settings)
        results().print(f"{install(Path(given[0]), settings.models_dir)} is in {settings.models_dir}.", soft_wrap=True)
    else:
        with _ledger(settings) as ledger:
            _with_ledger(ledger, act, given, Wish("", "", share, is_shadow), settings)


def _with_ledger(ledger: Ledger, act: Act, given: list[str], wish: Wish, settings: Settings) -> None:
    folder = models_dir(settings)
    if act == "list":
        results().print(models_table(survey(folder), read_plans(ledger), live_reports(ledger)))
        return
    operator = Operator(ledger, CardShelf(folder), actor=f"{getpass.getuser()}@{socket.gethostname()}")

    def progress(line: str) -> None:
        remarks().print(line, markup=False)

    name, *version = given
    plan = operator.switch(replace(wish, name=name, version=version[0]), progress) if version else operator.rollback(name, progress)
    results().print(plan_text(plan), soft_wrap=True)


def _check(folder: Path, settings: Settings) -> None:
    card, durations_s = load("workers.cli.model_check:check")(folder, settings)
    results().print(measured_table(card, durations_s))


def _settings() -> Settings:
    """The settings, with what `secondread up` left of this machine's own deployment where they do not say."""
    settings = Settings()
    access = read_access(settings.state_dir)
    if access is None:
        return settings
    found = {
        "database_url": settings.database_url or (SecretStr(access.database_url) if access.database_url else None),
        "models_dir": settings.models_dir or access.models_dir,
    }
    return settings.model_copy(update=found)


@contextmanager
def _ledger(settings: Settings) -> Iterator[Ledger]:
    if settings.database_url is None:
        complain("No ledger is known here.", "Start everything with `secondread up`, or set SECONDREAD_DATABASE_URL.")
        raise typer.Exit(1)
    ledger = open_ledger(settings.database_url.get_secret_value(), connections=1, application="secondread models")
    try:
        yield ledger
    finally:
        ledger.close()
