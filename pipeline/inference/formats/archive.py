"""Zip archives of models, read by us before torch sees them: every record once, and only records with a name that we know."""

import io
import re
import zipfile
from collections.abc import Iterator, Mapping
from typing import Final

from pipeline.inference.weights import WeightsRefused

MOST_BYTES: Final = 16 * 1024**3
"""Of all records together, unpacked: a small file may ask for more memory than there is."""


def records_of(content: bytes, place: str) -> dict[str, bytes]:
    """Read all records of an archive by their names below its one root folder.

    Raises
    ------
    WeightsRefused
        It is no zip archive, has several roots, names a record twice, or unpacks to too much.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            names = [entry.filename for entry in entries]
            # Readers differ in which of two records with one name they take: what was checked would not be what is run.
            if len(set(names)) < len(names) or len({name.partition("/")[0] for name in names}) != 1:
                raise refused(place, "its records are not those of one model")
            if sum(entry.file_size for entry in entries) > MOST_BYTES:
                raise refused(place, "it unpacks to more than a model may take")
            return {name.partition("/")[2]: archive.read(name) for name in names if not name.endswith("/")}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError, OSError) as error:
        raise refused(place, "it is no archive") from error


def written(records: Mapping[str, bytes], root: str = "model") -> bytes:
    """Write records as an archive that torch reads: stored, not packed."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name, content in records.items():
            archive.writestr(f"{root}/{name}", content)
    return target.getvalue()


def unknown_records(records: Mapping[str, bytes], known: "re.Pattern[str]") -> Iterator[str]:
    """The names that are none of the known ones."""
    return (name for name in records if not known.fullmatch(name))


def refused(place: str, why: str) -> WeightsRefused:
    """The refusal of a file that is not of its format, or holds what we do not run."""
    return WeightsRefused(f"{place}: {why}", file=place, fault="format")
