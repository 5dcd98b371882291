"""What a pickle does that somebody opens."""

from pathlib import Path


class Canary:
    """Its pickle makes a file when it is opened."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self._path,)
