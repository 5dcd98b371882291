"""What fetch hands to preprocess."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FetchedInstance:
    """One instance's bytes and their SHA-256."""

    data: bytes
    digest: str
