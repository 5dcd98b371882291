"""The whole product as `secondread up` starts it, once for all tests of the command."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pipeline.dicom.phantom import PhantomStudy, phantom_instance
from pipeline.imaging.phantom import phantom
from workers.access import Access
from workers.cli.demonstration.server import OwnDeployment, demo_settings
from workers.cli.main import app
from workers.client import Client
from workers.settings import Settings


@dataclass(frozen=True)
class Running:
    """A deployment that runs, and where it keeps its state."""

    state_dir: Path
    access: Access


@pytest.fixture(scope="session")
def running() -> Iterator[Running]:
    """A deployment on free ports in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="secondread-tests-"))
    folder.chmod(0o711)
    settings = demo_settings(Settings(state_dir=folder))
    try:
        with OwnDeployment(settings) as own:
            yield Running(settings.state_dir, own.wait_until_up(lambda line: None))
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def client(running: Running) -> Iterator[Client]:
    """The client of that deployment."""
    with Client(running.access.url, running.access.api_key) as opened:
        yield opened


@pytest.fixture
def secondread(running: Running, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run the command on the machine of that deployment."""
    for name in [each for each in os.environ if each.startswith("SECONDREAD_")]:
        monkeypatch.delenv(name)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, list(arguments), env={"SECONDREAD_STATE_DIR": str(running.state_dir)})

    return run


@pytest.fixture
def lesion_file(tmp_path: Path) -> Path:
    """A made-up ultrasound image with one spiky lesion, 0.2 mm a pixel."""
    image, _ = phantom(12, irregularity=0.3)
    file = tmp_path / "lesion.dcm"
    file.write_bytes(phantom_instance(image, PhantomStudy(name="lesion", spacing_mm=(0.2, 0.2))))
    return file
