"""MONAI bundles: what their `metadata.json` states of our card. Torch stays out of here.

It knows the network's input and the model's name, version, purpose, authors and data. It does not know what a card must
say before a model may read for a clinician: where the model applies, its thresholds, the codes of its findings, its known
limits, and the digest of its weights. These stand in a `card.toml` beside it.

References
----------
MONAI bundle specification, "metadata.json File" (docs.monai.io, mb_specification).
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

PLACES: Final = ("metadata.json", "configs/metadata.json")
WEIGHTS_FILE: Final = "models/model.ts"
"""Where a bundle keeps its TorchScript; `models/model.pt` beside it is a pickle."""
LONGEST_NAME: Final = 63


def find_metadata(folder: Path) -> Path | None:
    """The bundle's `metadata.json`; None where the folder is no bundle."""
    return next((folder / place for place in PLACES if (folder / place).is_file()), None)


def card_fields(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What the metadata states of a card, as `card.toml` would write it; fields that it does not state are left out."""
    fields = {
        "name": _slug(metadata.get("name")),
        "version": _text(metadata.get("version")),
        "title": _text(metadata.get("task")),
        "manufacturer": _text(metadata.get("authors")),
        "intended_use": _text(metadata.get("intended_use")) or _text(metadata.get("description")),
        "licence": _text(metadata.get("license")) or _text(metadata.get("copyright")),
        "data": _data(metadata),
        "weights": WEIGHTS_FILE,
        "input": _input(metadata.get("network_data_format")),
        "figures": _figures(metadata.get("eval_metrics")),
    }
    return {name: value for name, value in fields.items() if value}


def _text(value: object) -> str | None:
    return value.strip() if isinstance(value, str) and value.strip() else None


def _slug(value: object) -> str | None:
    text = _text(value)
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:LONGEST_NAME] if text else None


def _data(metadata: Mapping[str, Any]) -> str | None:
    references = metadata.get("references")
    said = [_text(metadata.get("data_source")), *(map(_text, references) if isinstance(references, list) else ())]
    return " ".join(each for each in said if each) or None


def _figures(metrics: object) -> dict[str, Any]:
    return {str(name): value for name, value in metrics.items() if isinstance(value, int | float)} if isinstance(metrics, dict) else {}


def _input(formats: object) -> dict[str, Any]:
    """The side, channels and scale of the first input. A range of 0 to 1 is a scale of 1/255 on bytes, 0 to 255 one of 1."""
    inputs = formats.get("inputs") if isinstance(formats, dict) else None
    first = next(iter(inputs.values()), None) if isinstance(inputs, dict) else None
    if not isinstance(first, dict):
        return {}
    found: dict[str, Any] = {}
    shape, channels, bounds = first.get("spatial_shape"), first.get("num_channels"), first.get("value_range")
    # A square of a stated side: patches ("*") and formulas ("16*n") say nothing that a letterbox could be made for.
    if isinstance(shape, list) and len(shape) == 2 and isinstance(shape[0], int) and shape[0] == shape[1]:
        found["side_px"] = shape[0]
    if isinstance(channels, int):
        found["channels"] = channels
    if bounds in ([0, 1], [0, 255]):
        found["scale"] = 1 / 255 if bounds == [0, 1] else 1.0
    return found
