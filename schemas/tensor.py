"""Handles: what travels instead of a tensor."""

from typing import Literal
from uuid import UUID

from pydantic import AwareDatetime, Field

from schemas.frozen import Frozen

TensorDtype = Literal["uint8", "int8", "uint16", "int16", "uint32", "int32", "float16", "float32"]


class TensorHandle(Frozen):
    """Where one tensor lies; the tensor itself never travels."""

    store: Literal["shared_memory", "memory"]
    """The backend that holds it."""
    key: str = Field(pattern=r"^[0-9a-f]{32}$")
    """The name in the store. Made by us, never by a sender."""
    shape: tuple[int, ...]
    """Axes as the producer's docstring names them."""
    dtype: TensorDtype
    """The narrowest exact type; widened on the device."""
    digest: str = Field(pattern=r"^[0-9a-f]{64}$")
    """SHA-256 of the C-ordered bytes: checked at every read."""
    case_id: UUID
    """The case it belongs to: checked at every read."""
    generation: int = Field(ge=0)
    """The claim's attempt that wrote it."""
    expires_at: AwareDatetime
    """From then on the store may drop it, whoever still holds the handle."""
