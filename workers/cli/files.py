"""Which files a submission sends, and how they form cases."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from workers.cli.lazy import load

PREAMBLE_BYTES = 128
MAGIC = b"DICM"
"""After the preamble, PS3.10 7.1."""
DICOMDIR = "DICOMDIR"
"""A table of contents (PS3.10 8.6): DICOM, but no image."""


def find_files(paths: Iterable[Path]) -> list[Path]:
    """Every file that was named, and what looks like an image of DICOM in every folder, deep and in order; none twice."""
    found = [file for path in paths for file in (_in_folder(path) if path.is_dir() else [path])]
    return list({file.resolve(): file for file in found}.values())


def group_files(files: Sequence[Path], *, is_study_per_case: bool | None) -> list[tuple[Path, ...]]:
    """Form cases: one of each study (True), one of all files (False), one of each file (None).

    Raises
    ------
    MissingExtra
        Studies are told apart by reading the headers, for which the server's packages are needed.
    """
    if is_study_per_case is None:
        return [(file,) for file in files]
    if not is_study_per_case:
        return [tuple(files)] if files else []
    study_of = load("workers.cli.study_of:study_of")
    studies: dict[str, list[Path]] = {}
    for file in files:
        # What names no study is a case of its own.
        studies.setdefault(study_of(file) or f"file {file}", []).append(file)
    return [tuple(group) for group in studies.values()]


def case_name(files: Sequence[Path]) -> str:
    """How a case is called in a table: by the first of its files."""
    return files[0].name if len(files) == 1 else f"{files[0].name} and {len(files) - 1} more"


def _in_folder(folder: Path) -> Iterator[Path]:
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file.name != DICOMDIR and (file.suffix.lower() == ".dcm" or _has_magic(file)):
            yield file


def _has_magic(file: Path) -> bool:
    try:
        with file.open("rb") as source:
            source.seek(PREAMBLE_BYTES)
            return source.read(len(MAGIC)) == MAGIC
    except OSError:  # not ours to read
        return False
