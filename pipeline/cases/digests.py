"""The root of a case's digest chain."""

from collections.abc import Iterable
from hashlib import sha256


def chain_of(digests: Iterable[str]) -> str:
    """SHA-256 over the hex digits of the digests, in order and without separators."""
    return sha256("".join(digests).encode("ascii")).hexdigest()
