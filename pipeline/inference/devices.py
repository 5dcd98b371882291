"""Which devices torch sees. `python -m pipeline.inference.devices` prints them as JSON, for a process that does not load torch itself."""

import json
import platform
import sys
from pathlib import Path
from typing import Final

import torch

from pipeline.inference.absence import require_among

CPU: Final = "cpu"
_CPU_INFO: Final = Path("/proc/cpuinfo")


def devices_seen() -> dict[str, str]:
    """Every device that a model can run on here, as torch names it, with what it is."""
    found = {CPU: cpu_name()}
    return found | {f"cuda:{number}": torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())}


def require_device(device: str) -> None:
    """Refuse a device that is not there, and say what is.

    Raises
    ------
    DeviceAbsent
        Torch does not see it from this process.
    """
    require_among(device, devices_seen(), torch_version=torch.__version__)


def name_of(device: str) -> str:
    """What a device is: figures of one are worth nothing on another."""
    return cpu_name() if device == CPU else torch.cuda.get_device_name(device)


def cpu_name() -> str:
    """The processor's model, or its architecture where the kernel does not tell."""
    try:
        lines = _CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


def main() -> None:
    """Print what is seen."""
    json.dump({"torch": torch.__version__, "seen": devices_seen()}, sys.stdout)


if __name__ == "__main__":
    main()
