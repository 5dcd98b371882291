"""Which build of torch is here, and which devices it sees. Apart from the rest because torch takes seconds to load."""

from collections.abc import Iterator

import torch

from workers.cli.diagnosis.note import Note


def look_at_torch(device: str) -> Iterator[Note]:
    """Say what torch can run on, and whether the device of the settings is among it."""
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU"
    names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    seen = ", ".join(f"cuda:{number} {name}" for number, name in enumerate(names)) or "no NVIDIA device"
    yield Note("good", f"torch {torch.__version__} is a {build} build and sees {seen}.")
    known = {"cpu", "cuda", *(f"cuda:{number}" for number in range(len(names)))} - (set() if names else {"cuda"})
    if device not in known:
        yield Note("missing", f"The device {device} is not there: set SECONDREAD_DEVICE to one of {', '.join(sorted(known))}.")
    elif names and device == "cpu":
        yield Note("odd", "An NVIDIA device is here but not used: set SECONDREAD_DEVICE=cuda:0.")
