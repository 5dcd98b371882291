"""Performance cards on disk. Torch stays out of here.

A card is kept in the state folder, not in the model's: a model folder may be read-only, and several hosts with different
devices may share it. Its name is made of what it is true for: weights, input side, device and threads.
"""

import os
import re
from pathlib import Path
from typing import Final

from schemas.performance_card import PerformanceCard

FOLDER: Final = "performance"
"""Below the state folder."""


def card_file(folder: Path, *, weights_sha256: str, bucket: int, device_name: str, threads: int) -> Path:
    """Where the performance card of a model on a device lies."""
    device = re.sub(r"[^a-z0-9]+", "-", device_name.lower()).strip("-")
    return folder / f"{weights_sha256[:16]}-{bucket}px-{device}-{threads}t.json"


def keep(card: PerformanceCard, folder: Path) -> Path:
    """Write a card where a process that starts will look for it; return that place.

    It is replaced as a whole: whoever reads meanwhile has the old one or the new one.

    Raises
    ------
    OSError
        The folder cannot be written.
    """
    place = card_file(folder, weights_sha256=card.weights_sha256, bucket=card.bucket, device_name=card.device_name, threads=card.threads)
    folder.mkdir(parents=True, exist_ok=True)
    fresh = place.with_name(f".{place.name}.{os.getpid()}")
    fresh.write_text(as_json(card), encoding="utf-8")
    fresh.replace(place)
    return place


def as_json(card: PerformanceCard) -> str:
    """The card as it is kept."""
    return card.model_dump_json(indent=1) + "\n"
