"""One pool of decode children for the whole folder, and the corpus file by file."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.dicom.decoder import Decoder


@pytest.fixture(scope="session")
def decoder() -> Iterator[Decoder]:
    """A warm pool of two, with the limits of an installation that nobody has changed."""
    with Decoder(child_count=2) as pool:
        pool.warm()
        yield pool


@pytest.fixture
def alone() -> Iterator[Decoder]:
    """A pool of one child that is nobody else's."""
    with Decoder(child_count=1) as pool:
        pool.warm()
        yield pool


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give `expectation` every row of the corpus folders that hold single and broken files."""
    if "expectation" not in metafunc.fixturenames:
        return
    plugins = metafunc.config.pluginmanager.get_plugins()
    folder: Path = next(plugin.DESIGN_DATA for plugin in plugins if hasattr(plugin, "DESIGN_DATA"))
    listing = folder / "expectations.json"
    rows: list[dict[str, Any]] = json.loads(listing.read_text(encoding="utf-8")) if listing.is_file() else []
    wanted = [row for row in rows if row["path"].startswith(("single/", "broken/", "us_breast/"))]
    metafunc.parametrize("expectation", wanted, ids=[row["path"] for row in wanted])
