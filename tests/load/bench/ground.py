"""What every section of the bench stands on: images, the bench model, the bare loop's best batch, and a running product."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.dicom.phantom import PhantomStudy, phantom_instance
from pipeline.flow import DEADLINE_S
from pipeline.imaging.phantom import phantom
from pipeline.inference.seeded import write_seeded_model
from tests.acceptance.running import Deployment, running_deployment
from tests.load.clients import Clients, multipart
from workers.settings import INFERENCE_VARIABLES, MIB, TUNED_VARIABLES

ROOT = Path(__file__).resolve().parents[3]
CORES = os.cpu_count() or 1
IN_FLIGHT = 32
IMAGES = 16
IMAGE_PX = 512
SIDE_PX = 480
"""The bench model's input: 25 to 30 CPU ms an image, bare."""
BATCHES = (4, 8, 16)
SEARCH_S = 4.0
LEAD_IN_S = 2.0
"""Until all clients are spread over the pools; a drain is not measured either, as the bare loop has neither."""
WARM_S = 4.0
SETTINGS = {
    "SECONDREAD_DEADLINE_S": f"{DEADLINE_S:g}",
    "SECONDREAD_PRELIMINARY_AFTER_S": "10",
    "SECONDREAD_MAX_BODY_BYTES": str(256 * MIB),
    "SECONDREAD_LOG_LEVEL": "warning",
}

Tell = Callable[[str], None]
Bodies = list[tuple[bytes, str]]


def image_files(folder: Path, *, side_px: int, count: int = IMAGES) -> Path:
    """Write made-up images of a size, one study each."""
    folder.mkdir(parents=True)
    for seed in range(count):
        image, _ = phantom(seed, rows_px=side_px, columns_px=side_px)
        (folder / f"{seed:02d}.dcm").write_bytes(phantom_instance(image, PhantomStudy(name=f"bench-{seed}")))
    return folder


def bodies_of(images: Path, **fields: str) -> Bodies:
    """The forms that submit these images."""
    return [multipart(path.read_bytes(), **fields) for path in sorted(images.glob("*.dcm"))]


@dataclass
class Ground:
    """What is measured with."""

    folder: Path
    tell: Tell
    model: Path = field(init=False)
    images: Path = field(init=False)

    def __post_init__(self) -> None:
        """Write the bench model and the images."""
        self.images = image_files(self.folder / "images", side_px=IMAGE_PX)
        self.model = self.folder / "models" / "bench"
        write_seeded_model(self.model, seed=7, side_px=SIDE_PX)

    @cached_property
    def best_batch(self) -> int:
        """The batch size at which the bare loop is fastest on the bench model."""
        return self.best_batch_of(self.model)

    def best_batch_of(self, model: Path) -> int:
        """The batch size at which the bare loop is fastest."""
        self.tell(f"{model.name}: looking for the best batch of the bare loop")
        tried = {batch: self.bare(model, batch=batch, processes=CORES, seconds=SEARCH_S)["images_per_s"] for batch in BATCHES}
        return max(tried, key=lambda batch: tried[batch])

    def bare(self, model: Path, *, batch: int, processes: int, seconds: float) -> dict[str, float]:
        """Run the bare loop in processes of its own, as fast as it goes."""
        asked = {"batch": batch, "processes": processes, "seconds": seconds, "model": model, "images": self.images}
        result: dict[str, float] = run_beside("bare_loop", asked)
        return result


def run_beside(module: str, asked: dict[str, object]) -> dict[str, Any]:
    """Run a module of the bench as a process; return the JSON that it prints."""
    command = [sys.executable, "-m", f"tests.load.bench.{module}"]
    command += [part for name, value in asked.items() for part in (f"--{name}", str(value))]
    # The same tuning as our own processes have: the limit of the machine, not of a default.
    environment = os.environ | TUNED_VARIABLES | INFERENCE_VARIABLES | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=ROOT)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@contextmanager
def product(models: Path, *, module: str = "workers.cli.main", **settings: str) -> Iterator[Deployment]:
    """Run the whole product on a folder of models, an inference process a core."""
    usual = SETTINGS | {"SECONDREAD_MODELS_DIR": str(models), "SECONDREAD_INFERENCE_WORKERS": str(CORES)}
    with running_deployment(module=module, **(usual | settings)) as deployment:
        yield deployment


def clients(deployment: Deployment, bodies: Bodies, *, in_flight: int = IN_FLIGHT) -> Clients:
    """Clients that keep so many cases in flight."""
    return Clients(deployment.access.url, deployment.access.api_key, bodies, in_flight=in_flight)


def warm_up(deployment: Deployment, bodies: Bodies) -> None:
    """Let every process have its caches and its statements."""
    with clients(deployment, bodies).loaded():
        time.sleep(WARM_S)


def sustained(deployment: Deployment, bodies: Bodies, seconds: float) -> float:
    """(c): images a second while every client has a case in flight."""
    with clients(deployment, bodies).loaded() as answered:
        time.sleep(LEAD_IN_S)
        first, begun = len(answered.latencies), time.perf_counter()
        time.sleep(seconds)
        return (len(answered.latencies) - first) / (time.perf_counter() - begun)
