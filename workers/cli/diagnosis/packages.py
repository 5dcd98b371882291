"""Which packages the extras ask for, and which of them are not there."""

import importlib.metadata
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from workers.cli.diagnosis.note import Note

PRODUCT = "secondread"
_REQUIREMENT = re.compile(r"^(?P<name>[\w.-]+)(\[[^\]]*\])?\s*(?P<versions>[^;]*)(;(?P<marker>.*))?$")
_EXTRA = re.compile(r"extra\s*==\s*[\"']([^\"']+)[\"']")
_AT_LEAST = re.compile(r">=\s*([\d.]+)")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One package that the product asks for."""

    name: str
    at_least: str
    """Empty: any version."""
    extra: str
    """Empty: needed by everything."""


def requirements() -> list[Requirement]:
    """What the installed product asks for, by its metadata; nothing for a checkout that was never installed."""
    try:
        return parse_requirements(importlib.metadata.requires(PRODUCT) or [])
    except importlib.metadata.PackageNotFoundError:
        return []


def parse_requirements(lines: Iterable[str]) -> list[Requirement]:
    """Read lines such as `celery[redis]<5.8,>=5.7; extra == "server"`. An extra's reference to another is left out."""
    parsed = []
    for line in lines:
        found = _REQUIREMENT.match(line)
        if found and found["name"] != PRODUCT:
            extra, at_least = _EXTRA.search(found["marker"] or ""), _AT_LEAST.search(found["versions"])
            parsed.append(Requirement(found["name"], at_least[1] if at_least else "", extra[1] if extra else ""))
    return parsed


def installed_version(name: str) -> str | None:
    """The version of an installed package; None where it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def look_at_extra(
    extra: str, asked: Iterable[Requirement], *, needed_for: str, version_of: Callable[[str], str | None] = installed_version
) -> Note:
    """Say whether an extra's own packages are there; `needed_for` says who needs them, and is empty where nobody does now."""
    mine = [each for each in asked if each.extra == extra]
    title = f"The extra `{extra}`" if extra else "The base"
    faults = list(_faults(mine, version_of))
    if not faults:
        return Note("good", f"{title} is complete ({len(mine)} {'package' if len(mine) == 1 else 'packages'}).")
    what = f"{PRODUCT}[{extra}]" if extra else PRODUCT
    sentence = f"{title} lacks {', '.join(faults)}: pip install '{what}'."
    return Note("missing", f"{sentence} {needed_for} needs it.") if needed_for else Note("good", f"{sentence} Nothing here needs it.")


def _faults(asked: Iterable[Requirement], version_of: Callable[[str], str | None]) -> Iterator[str]:
    for each in asked:
        version = version_of(each.name)
        if version is None:
            yield each.name
        elif each.at_least and _numbers(version) < _numbers(each.at_least):
            yield f"{each.name} {each.at_least} (is {version})"


def _numbers(version: str) -> tuple[int, ...]:
    release = re.match(r"[\d.]+", version)
    return tuple(int(part) for part in release[0].split(".") if part) if release else ()
