"""The one base of everything that travels."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value: it does not change, and a field that nobody declared is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
