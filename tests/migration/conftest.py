"""A real PostgreSQL for the migrations, and an empty database for each of their tests."""

import shutil
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from workers.embedded.postgres import EmbeddedPostgres

NUMBERS = count()


@pytest.fixture(scope="session")
def migration_server() -> Iterator[EmbeddedPostgres]:
    """One server for the whole run; its folder is open to the user that it runs as."""
    folder = Path(tempfile.mkdtemp(prefix="secondread-tests-"))
    folder.chmod(0o711)
    with EmbeddedPostgres(folder / "postgres", is_durable=False) as server:
        yield server
    shutil.rmtree(folder)


@pytest.fixture
def empty_url(migration_server: EmbeddedPostgres) -> str:
    """An empty database of this test's own."""
    return migration_server.create_database(f"migration_{next(NUMBERS)}")
