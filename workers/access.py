"""How the command finds the deployment of this machine: its address and the local tenant's key, in a private file."""

from pathlib import Path

from pydantic import Field, ValidationError

from schemas.frozen import Frozen
from workers.embedded.privileges import write_private


class Access(Frozen):
    """Where the door is and what opens it."""

    url: str
    metrics_url: str
    api_key: str = Field(repr=False)
    redis_url: str | None = Field(default=None, repr=False)
    """The queues, password included: Flower reads them. None in a file of an older version."""
    database_url: str | None = Field(default=None, repr=False)
    """The ledger, password included: `secondread models` acts on it. None in a file of an older version."""
    models_dir: Path | None = None
    """Where its models lie; None: those that come with the product."""


def access_file(state_dir: Path) -> Path:
    """The file's place."""
    return state_dir / "access.json"


def read_access(state_dir: Path) -> Access | None:
    """The access that the last `secondread up` left; None where there is none."""
    try:
        return Access.model_validate_json(access_file(state_dir).read_bytes())
    except (OSError, ValidationError):
        return None


def write_access(state_dir: Path, access: Access) -> None:
    """Leave it for the command, readable by this user alone."""
    state_dir.mkdir(parents=True, exist_ok=True)
    write_private(access_file(state_dir), access.model_dump_json(indent=2) + "\n")
