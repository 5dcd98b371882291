"""Weights from disk: the digest first, then safetensors. No pickle is ever opened."""

import hashlib
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from pipeline.errors import SecondreadError
from schemas.model_card import ModelCard


class WeightsRefused(SecondreadError):
    """A model file is missing, is not the one its card names, or is no safetensors file."""

    code = "weights-refused"
    title = "A model's files are not those of its card"
    advice = "Install the model folder again from its source; do not edit the digests of its card."


def verified_bytes(path: Path, *, sha256: str) -> bytes:
    """Read a file once and return it only if its SHA-256 is the card's.

    What was hashed is what the caller parses: the file is not opened a second time.

    Raises
    ------
    WeightsRefused
        The file cannot be read, or its digest differs.
    """
    place = f"{path.parent.name}/{path.name}"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise WeightsRefused(f"{place}: cannot be read ({error.strerror})", file=place, fault="unreadable") from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise WeightsRefused(f"{place}: its digest is not the card's", file=place, fault="digest", found=found, expected=sha256)
    return content


def read_weights(folder: Path, card: ModelCard) -> dict[str, Tensor]:
    """Read the weights that the card names, on the CPU, by their stored names.

    Raises
    ------
    WeightsRefused
        The file cannot be read, its digest is not the card's, or it is no safetensors file.
    """
    content = verified_bytes(folder / card.weights, sha256=card.weights_sha256)
    try:
        return load(content)
    except SafetensorError as error:
        place = f"{folder.name}/{card.weights}"
        raise WeightsRefused(f"{place}: not a safetensors file", file=place, fault="format") from error
