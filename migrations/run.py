"""Bring a ledger to the newest revision, and tell whether it is there."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

_INI = Path(__file__).with_name("alembic.ini")


def _configuration(url: str) -> Config:
    configuration = Config(str(_INI))
    configuration.attributes["url"] = url
    return configuration


def migrate(url: str, revision: str = "head") -> None:
    """Upgrade the ledger; does nothing where it is up to date."""
    command.upgrade(_configuration(url), revision)


def downgrade(url: str, revision: str) -> None:
    """Take the ledger back to a revision."""
    command.downgrade(_configuration(url), revision)


def newest_revision() -> str:
    """The revision that this code expects."""
    head = ScriptDirectory.from_config(_configuration("")).get_current_head()
    if head is None:
        raise RuntimeError("the migrations folder is empty")
    return head


def present_revision(url: str) -> str | None:
    """The revision that the ledger is at; None where it was never migrated."""
    engine = create_engine(url)
    with engine.connect() as connection:
        revision = MigrationContext.configure(connection).get_current_revision()
    engine.dispose()
    return revision
