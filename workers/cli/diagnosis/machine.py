"""Python, memory, folders, ports, clock."""

import os
import shutil
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from workers.cli.diagnosis.note import Note
from workers.embedded.ports import is_free
from workers.settings import Settings

PYTHON_AT_LEAST = (3, 11)
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - shared memory is the point
MIB = 1024 * 1024
DISK_LOW_BYTES = 2048 * MIB
RELEASED = datetime(2026, 1, 1, tzinfo=UTC)
"""No clock that is right shows less."""


def look_at_python(version: tuple[int, ...] = sys.version_info[:3]) -> Note:
    """Say whether this Python will do."""
    text = ".".join(map(str, version))
    if version >= PYTHON_AT_LEAST:
        return Note("good", f"Python {text}.")
    return Note("missing", f"Python {text} is too old: install {'.'.join(map(str, PYTHON_AT_LEAST))} or later.")


def look_at_shared_memory(settings: Settings, *, default: Path = SHARED_MEMORY) -> Note:
    """Say whether the tensor store has room in memory."""
    place = nearest_folder(settings.tensor_dir or default)
    if not os.access(place, os.W_OK):
        return Note("missing", f"{place} cannot be written to: name a folder in memory with SECONDREAD_TENSOR_DIR.")
    size_bytes, wanted_bytes = shutil.disk_usage(place).total, settings.tensor_capacity_bytes
    if size_bytes < wanted_bytes:
        return Note(
            "missing",
            f"{place} holds {size_bytes // MIB} MiB, and the tensor store may take {wanted_bytes // MIB} MiB: give it more"
            " (docker run --shm-size), or lower SECONDREAD_TENSOR_CAPACITY_BYTES.",
        )
    return Note("good", f"{place} holds {size_bytes // MIB} MiB, the tensor store takes {wanted_bytes // MIB} MiB at most.")


def look_at_state_folder(settings: Settings) -> Note:
    """Say whether the state folder can be made and has room."""
    place = nearest_folder(settings.state_dir)
    if not os.access(place, os.W_OK):
        return Note("missing", f"{place} cannot be written to: name another folder with SECONDREAD_STATE_DIR.")
    free_bytes = shutil.disk_usage(place).free
    if free_bytes < DISK_LOW_BYTES:
        return Note("odd", f"Only {free_bytes // MIB} MiB are free for the state folder {settings.state_dir}.")
    return Note("good", f"The state folder {settings.state_dir} can be written to, {free_bytes // MIB} MiB are free.")


def look_at_ports(settings: Settings, *, is_up: bool) -> Iterator[Note]:
    """Say whether the two doors' ports are free; while `secondread up` runs they are its own."""
    for name, port in (("SECONDREAD_GATEWAY_PORT", settings.gateway_port), ("SECONDREAD_METRICS_PORT", settings.metrics_port)):
        if port == 0 or is_up:
            continue
        if is_free(port):
            yield Note("good", f"Port {port} is free ({name}).")
        else:
            yield Note("missing", f"Port {port} is taken by another process: end that, or set {name} (0 takes a free one).")


def look_at_clock(now: datetime) -> Note:
    """Say whether the clock can be right at all. Against the ledger's it is compared with the servers' checks."""
    if now < RELEASED:
        return Note("missing", f"The clock shows {now:%Y-%m-%d}, before this version was made: set it, best with NTP.")
    return Note("good", f"The clock shows {now:%Y-%m-%d %H:%M:%S} UTC.")


def nearest_folder(path: Path) -> Path:
    """The folder itself, or the nearest above it that exists."""
    return next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.is_dir())
