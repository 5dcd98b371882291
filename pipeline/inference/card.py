"""Model folders as every pool sees them: read the card, choose a model. Torch stays out of here."""

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pipeline.errors import SecondreadError
from pipeline.inference.bundle import card_fields, find_metadata
from schemas.instance import InstanceHeader
from schemas.model_card import ModelCard

CARD_FILE: Final = "card.toml"
SHIPPED_MODELS: Final = Path(__file__).parent / "models"
"""The models that come with the product."""

Cards = Mapping[str, tuple[ModelCard, Path]]
"""`name:version` to the card and its folder."""

log = structlog.get_logger(__name__)


class BadModelFolder(SecondreadError):
    """A model folder whose card is absent, unreadable or contradicts itself."""

    code = "bad-model-folder"
    title = "A model folder cannot be used"
    advice = "Correct the file and the field that the message names, then start again."


@dataclass(frozen=True, slots=True)
class Survey:
    """What lies in a models folder."""

    cards: dict[str, tuple[ModelCard, Path]]
    """By `name:version`."""
    refused: dict[str, BadModelFolder]
    """Why a folder's card was refused, by the folder's name."""


def load_card(folder: Path) -> ModelCard:
    """Read the card of one model folder: `card.toml`, which may complete or correct a MONAI bundle's `metadata.json`.

    Raises
    ------
    BadModelFolder
        The card is missing, is no TOML or JSON, lacks or misstates a field, or its fields contradict each other.
    """
    place, metadata = f"{folder.name}/{CARD_FILE}", find_metadata(folder)
    if metadata is None:
        fields = _read_fields(folder / CARD_FILE, place, tomllib.loads)
    else:
        fields = card_fields(_read_fields(metadata, f"{folder.name}/{metadata.name}", json.loads))
        if (folder / CARD_FILE).exists():
            fields = _completed(fields, _read_fields(folder / CARD_FILE, place, tomllib.loads))
        place = f"{place} and {metadata.name}"
    try:
        card = ModelCard.model_validate(fields)
    except ValidationError as error:
        faults = tuple(f"{'.'.join(map(str, fault['loc']))}: {_fault_text(fault)}" for fault in error.errors())
        raise BadModelFolder(f"{place}: {'; '.join(faults)}", file=place, fields=faults) from error
    _require_consistency(card, place)
    return card


def _read_fields(path: Path, place: str, parse: Callable[[str], Any]) -> dict[str, Any]:
    try:
        fields = parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadModelFolder(f"{place}: cannot be read ({error.strerror})", file=place) from error
    except ValueError as error:  # both parsers', and that of an encoding
        raise BadModelFolder(f"{place}: not valid {path.suffix[1:].upper()} ({error})", file=place) from error
    if not isinstance(fields, dict):
        raise BadModelFolder(f"{place}: it is no table of fields", file=place)
    return fields


def _completed(fields: dict[str, Any], by: Mapping[str, Any]) -> dict[str, Any]:
    """Lay what one source states over the other's, table by table."""
    laid = {
        key: _completed(fields[key], value) if isinstance(fields.get(key), dict) and isinstance(value, dict) else value
        for key, value in by.items()
    }
    return fields | laid


def _fault_text(fault: ErrorDetails) -> str:
    return "nobody states it" if fault["type"] == "missing" else fault["msg"]


def _require_consistency(card: ModelCard, place: str) -> None:
    if (card.golden is None) != (card.golden_sha256 is None):
        raise BadModelFolder(f"{place}: golden, golden_sha256: state both or neither", file=place, fields=("golden", "golden_sha256"))
    is_ours = card.weights.endswith(".safetensors")
    if is_ours != (card.network is not None):
        says = "name the network that safetensors are for" if is_ours else "weights of this format bring their own network"
        raise BadModelFolder(f"{place}: network: {says}", file=place, fields=("network",))
    # Both have an operating point in `thresholds`, which would hang in the air.
    missing = {"malignancy", "presence"} - set(card.scores)
    if missing or len(set(card.scores)) != len(card.scores):
        raise BadModelFolder(f"{place}: scores: name malignancy, presence and every other output once", file=place, fields=("scores",))


def survey(models_dir: Path) -> Survey:
    """Read the card of every folder in `models_dir`; a bad one does not hide the others.

    Raises
    ------
    BadModelFolder
        `models_dir` itself is no readable folder.
    """
    try:
        folders = sorted(entry for entry in models_dir.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise BadModelFolder(f"{models_dir.name}: the models folder cannot be read ({error.strerror})", file=models_dir.name) from error
    found = Survey(cards={}, refused={})
    for folder in folders:
        try:
            card = load_card(folder)
            if card.reference in found.cards:
                other = found.cards[card.reference][1].name
                raise BadModelFolder(f"{folder.name}/{CARD_FILE}: name, version: {card.reference} is already {other}", file=folder.name)
        except BadModelFolder as error:
            found.refused[folder.name] = error
        else:
            found.cards[card.reference] = (card, folder)
    return found


def find_cards(models_dir: Path) -> dict[str, tuple[ModelCard, Path]]:
    """Every usable card of `models_dir` by `name:version`, with its folder; refused folders are logged.

    Raises
    ------
    BadModelFolder
        `models_dir` itself is no readable folder.
    """
    found = survey(models_dir)
    for name, error in found.refused.items():
        log.warning("model_folder_refused", folder=name, reason=str(error))
    return found.cards


def why_not_applicable(card: ModelCard, header: InstanceHeader) -> str | None:
    """Say with a code why the model may not be shown this instance; None where it may.

    The codes are `modality-not-covered`, `body-part-not-covered`, `body-part-unstated` and `too-many-frames`.
    """
    allowed = card.applicability
    if header.modality not in allowed.modalities:
        return "modality-not-covered"
    if not header.body_part:
        if not allowed.body_part_may_be_unstated:
            return "body-part-unstated"
    elif header.body_part not in allowed.body_parts:
        return "body-part-not-covered"
    if header.frame_count > card.input.max_images:
        return "too-many-frames"
    return None


def choose_card(cards: Cards, header: InstanceHeader) -> ModelCard | None:
    """Choose the model for an instance: the first applicable name, in its newest version; None where no model applies."""
    applicable = [card for card, _ in cards.values() if why_not_applicable(card, header) is None]
    if not applicable:
        return None
    name = min(card.name for card in applicable)
    return newest(card for card in applicable if card.name == name)


def newest(versions: Iterable[ModelCard]) -> ModelCard:
    """The newest of one model's versions."""
    return max(versions, key=lambda card: _version_order(card.version))


def newest_first(versions: Iterable[str]) -> list[str]:
    """Order versions, 1.10 before 1.9."""
    return sorted(versions, key=_version_order, reverse=True)


def _version_order(version: str) -> tuple[tuple[int, str], ...]:
    """Order 1.10 after 1.9: runs of digits count as numbers."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.findall(r"\d+|[^\d.]+", version))
