"""Public ids: a prefix that says what it names, then a UUID of version 7 in 32 hex digits."""

from typing import Literal
from uuid import UUID

Prefix = Literal["case", "evt", "whe", "key"]


def public_id(prefix: Prefix, value: UUID) -> str:
    """Write an id as a client sees it: `case_0197...`."""
    return f"{prefix}_{value.hex}"


def parse_public_id(prefix: Prefix, text: str) -> UUID | None:
    """Read an id that a client sent; None where it is not one of ours."""
    start, _, digits = text.partition("_")
    if start != prefix or len(digits) != 32:
        return None
    try:
        value = UUID(hex=digits)
    except ValueError:
        return None
    # It reads more than we write: signs, underscores, capitals, the digits of other scripts.
    return value if value.hex == digits else None
