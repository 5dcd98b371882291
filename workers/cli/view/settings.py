"""The settings as rows: for the terminal, and for `docs/settings.md`."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings
from rich import box
from rich.table import Table
from rich.text import Text

SECRET = "***"  # noqa: S105 - what stands for one
MIB = 1024 * 1024
TYPE_WORDS: Mapping[Any, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    Path: "path",
    SecretStr: "secret text",
    dict: "JSON object",
    tuple: "JSON list",
}

HEAD = """\
# Settings

Every setting is an environment variable; there is no settings file. `secondread settings` prints this page with the values
in force. It is made by `secondread settings --markdown`; the source is `workers/settings.py`.
"""


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting."""

    variable: str
    kind: str
    default: str
    meaning: str
    value: str
    is_changed: bool


@dataclass(frozen=True, slots=True)
class SettingGroup:
    """The settings of one class, and what it is for."""

    title: str
    rows: tuple[SettingRow, ...]


def setting_groups(groups: Mapping[str, BaseSettings]) -> list[SettingGroup]:
    """Describe settings by their classes; a variable that two classes read is told once."""
    seen: set[str] = set()
    described = []
    for title, settings in groups.items():
        rows = [row for row in _rows(settings) if row.variable not in seen]
        seen.update(row.variable for row in rows)
        described.append(SettingGroup(title, tuple(rows)))
    return described


def settings_tables(groups: Sequence[SettingGroup]) -> Iterable[Table]:
    """One table a group, two lines a setting; what was changed from its default is bold."""
    for group in groups:
        table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False, title=group.title, title_justify="left")
        table.add_column("Variable, and what it means", overflow="fold", ratio=1)
        table.add_column("Type", overflow="fold", max_width=14)
        table.add_column("Default", overflow="fold", max_width=16)
        table.add_column("In force", overflow="fold", max_width=26)
        for row in group.rows:
            name = Text(row.variable, style="bold" if row.is_changed else "cyan")
            name.append(f"\n{row.meaning}", style="not bold default")
            table.add_row(name, row.kind, row.default, Text(row.value, style="bold" if row.is_changed else ""))
        yield table


def settings_markdown(groups: Sequence[SettingGroup]) -> str:
    """The same as a page, without the values in force."""
    parts = [HEAD]
    for group in groups:
        parts.append(f"\n## {group.title}\n\n| Variable | Type | Default | Meaning |\n|---|---|---|---|\n")
        parts += [f"| `{row.variable}` | {row.kind} | {row.default} | {row.meaning} |\n" for row in group.rows]
    return "".join(parts).replace("\n\n\n", "\n\n")


def _rows(settings: BaseSettings) -> Iterable[SettingRow]:
    prefix = str(settings.model_config.get("env_prefix", ""))
    for name, field in type(settings).model_fields.items():
        default, value = field.get_default(call_default_factory=True), getattr(settings, name)
        yield SettingRow(
            variable=f"{prefix}{name}".upper(),
            kind=_kind(field),
            default=_shown(default),
            meaning=" ".join((field.description or "").split()),
            value=_shown(value),
            is_changed=value != default,
        )


def _kind(field: FieldInfo) -> str:
    choices = [each for each in get_args(field.annotation) or (field.annotation,) if each is not NoneType]
    if get_origin(field.annotation) is Literal:
        return " or ".join(f"`{choice}`" for choice in choices)
    origin = get_origin(field.annotation)
    return TYPE_WORDS[origin if origin in TYPE_WORDS else choices[0]]


def _shown(value: Any) -> str:
    """A value for human eyes: secrets, and the passwords inside URLs, are stars."""
    if value is None:
        return "unset"
    if isinstance(value, SecretStr):
        return SECRET
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value >= MIB and value % MIB == 0:
        return f"{value} ({value // MIB} MiB)"
    if isinstance(value, Path):
        return _with_tilde(value)
    if isinstance(value, dict | tuple):
        return _without_passwords(json.dumps(value)) if value else "empty"
    return _without_passwords(f"{value:g}" if isinstance(value, float) else str(value))


def _without_passwords(text: str) -> str:
    return re.sub(r"(://[^:@/\s]*):[^@\s]*@", rf"\1:{SECRET}@", text)


def _with_tilde(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
