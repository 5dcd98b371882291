"""Bringing a model folder into the models folder: all of it or nothing, under the name of its version. Torch stays out of here."""

import os
import shutil
from pathlib import Path
from uuid import uuid4

from pipeline.inference.card import BadModelFolder, load_card, survey


def install(folder: Path, models_dir: Path) -> str:
    """Copy a model folder that was checked to `models_dir`/NAME-VERSION, and return its `name:version`.

    A process that surveys `models_dir` meanwhile sees the whole folder or none.

    Raises
    ------
    BadModelFolder
        The card is faulty, this version is there already, or the folder cannot be written.
    """
    card = load_card(folder)
    target = models_dir / f"{card.name}-{card.version}"
    # Folders that begin with a dot are not surveyed.
    incoming = models_dir / f".incoming-{uuid4().hex}"
    try:
        models_dir.mkdir(parents=True, exist_ok=True)
        if card.reference in survey(models_dir).cards or target.exists():
            raise BadModelFolder(f"{card.reference} is in {models_dir.name} already: a version is never changed", model=card.reference)
        shutil.copytree(folder, incoming)
        # On the disk before it has its name: a power cut leaves no half of a version.
        for each in incoming.rglob("*"):
            if each.is_file():
                with each.open("rb") as written:
                    os.fsync(written.fileno())
        incoming.rename(target)
    except OSError as error:
        raise BadModelFolder(f"{models_dir.name}: the folder cannot be written ({error.strerror})", model=card.reference) from error
    finally:
        shutil.rmtree(incoming, ignore_errors=True)
    return card.reference
