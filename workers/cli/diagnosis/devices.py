"""Which build of torch is here, and which devices it sees. Apart from the rest because torch takes seconds to load."""

from collections.abc import Iterator

import torch

from pipeline.inference.absence import DeviceAbsent
from pipeline.inference.devices import devices_seen
from workers.cli.diagnosis.note import Note
from workers.replicas import require_devices
from workers.settings import Settings


def look_at_torch(device: str) -> Iterator[Note]:
    """Say what torch can run on, and whether the devices of the settings are among it."""
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU"
    names = [f"{name} {what}" for name, what in devices_seen().items() if name != "cpu"]
    yield Note("good", f"torch {torch.__version__} is a {build} build and sees {', '.join(names) or 'no NVIDIA device'}.")
    try:
        # As at every start: a slice is looked for by a process that sees it alone.
        require_devices(Settings(device=device))
    except DeviceAbsent as error:
        yield Note("missing", f"{error}. {error.advice}")
        return
    if names and device == "cpu":
        yield Note("odd", "An NVIDIA device is here but not used: set SECONDREAD_DEVICE=cuda:0.")
