"""Inference processes and their devices: one process serves one device, and sees no other slice than its own."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.errors import SecondreadError
from pipeline.inference.absence import DeviceAbsent, require_among
from workers.settings import Settings, bare_environment, visible_devices

VISIBLE = "CUDA_VISIBLE_DEVICES"
FIRST = "cuda:0"
LOOK_LIMIT_S = 120.0
"""Loading torch and waking the driver takes seconds on a cold machine."""


class ManyDevices(SecondreadError):
    """One inference process was told to serve several devices."""

    code = "many-devices"
    title = "One inference process serves one device"
    advice = "Start one process for each, each with its own SECONDREAD_DEVICE; `secondread up` does so."


@dataclass(frozen=True, slots=True)
class Replica:
    """One inference process that `secondread up` starts."""

    name: str
    device: str


def replicas(settings: Settings) -> list[Replica]:
    """Every inference process: each device of the list has `inference_workers` of them."""
    devices = [device for device in settings.devices for _ in range(settings.inference_workers)]
    return [Replica(f"inference-{number}", device) for number, device in enumerate(devices, start=1)]


def visible(device: str) -> dict[str, str]:
    """What a process needs so that it sees this device: a GPU or a slice that is named by its id is the only one that it sees."""
    return {VISIBLE: _id_of(device)} if _id_of(device) else {}


def torch_device(device: str) -> str:
    """How torch names it in a process that has `visible(device)` in its environment."""
    return FIRST if device == "cuda" or _id_of(device) else device


def own_device(settings: Settings) -> str:
    """The one device that this process serves, as torch names it.

    Raises
    ------
    ManyDevices
        The settings name several.
    DeviceAbsent
        It is named by its id and this process was not started for it: torch would take another, the whole GPU perhaps.
    """
    if len(settings.devices) > 1:
        raise ManyDevices(f"SECONDREAD_DEVICE names {len(settings.devices)} devices")
    (device,) = settings.devices
    wanted = _id_of(device)
    if wanted and visible_devices() != wanted:
        raise DeviceAbsent(f"{device} is not what this process sees: start it with {VISIBLE}={wanted}", device=device)
    return torch_device(device)


def require_devices(settings: Settings) -> None:
    """Refuse devices that are not there before anything is started. The CPU always is, so nothing is loaded for it.

    Raises
    ------
    DeviceAbsent
        A device is not there, or torch does not load; the message says what is there.
    """
    for device in dict.fromkeys(settings.devices):
        if device != "cpu":
            torch_version, seen = look(visible(device))
            if torch_device(device) not in seen:
                _, seen = look({}) if visible(device) else (torch_version, seen)
                require_among(device, seen, torch_version=torch_version)


def look(variables: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Ask a child process with these variables which torch it has and which devices that sees.

    Raises
    ------
    DeviceAbsent
        Torch does not load there.
    """
    command = [sys.executable, "-m", "pipeline.inference.devices"]
    environment = bare_environment() | dict(variables)
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LOOK_LIMIT_S, check=True)
    except subprocess.SubprocessError as error:
        said = (getattr(error, "stderr", "") or "").strip().splitlines()
        raise DeviceAbsent(f"torch could not say which devices there are: {said[-1] if said else 'it took too long'}") from error
    told = json.loads(done.stdout.splitlines()[-1])
    return told["torch"], told["seen"]


def _id_of(device: str) -> str:
    """The id in `cuda:MIG-...` or `cuda:GPU-...`; empty where a device is named by its number."""
    name = device.removeprefix("cuda:")
    return name if name.startswith(("MIG-", "GPU-")) else ""
