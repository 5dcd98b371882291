"""What is said of a device that is not there. Torch stays out of here: the supervisor says it too."""

from collections.abc import Mapping

from pipeline.errors import SecondreadError


class DeviceAbsent(SecondreadError):
    """The settings, or a command, name a device that torch does not see here."""

    code = "device-absent"
    title = "A device is not there"
    advice = "Name devices that are there, in SECONDREAD_DEVICE or with --device; `nvidia-smi -L` lists GPUs and MIG slices."


def require_among(device: str, seen: Mapping[str, str], *, torch_version: str) -> None:
    """Refuse a device that is not among those that torch sees.

    Raises
    ------
    DeviceAbsent
        It is not; the message says what is.
    """
    if device not in seen:
        there = "; ".join(f"{name} ({what})" for name, what in seen.items())
        raise DeviceAbsent(f"{device} is not there: torch {torch_version} sees {there}", device=device, seen=tuple(seen))
