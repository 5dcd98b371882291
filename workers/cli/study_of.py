"""Which study a file belongs to. Apart from the rest because the DICOM reader comes with the server's packages."""

from pathlib import Path

from pipeline.dicom.reading.file import open_file
from pipeline.errors import RejectedInput

INFLATE_BUDGET_BYTES = 256 * 1024 * 1024


def study_of(file: Path) -> str | None:
    """The Study Instance UID (0020,000D) of a file; None where it names none that can be read."""
    try:
        return open_file(file.read_bytes(), inflate_budget_bytes=INFLATE_BUDGET_BYTES).elements.uid("StudyInstanceUID")
    except (RejectedInput, OSError):
        return None
