"""What can become of a batch on its device, and how torch's errors tell it."""

from typing import Final

import torch

from pipeline.errors import ModelFailed, Quarantined, Unavailable

DeviceLost = torch.AcceleratorError
"""An illegal access, a memory fault: the device answers this process no more, whatever it is asked. The process must end."""

_OUT_OF_MEMORY_CODE: Final = 2
"""cudaErrorMemoryAllocation. The runtime says it where torch's own allocator was not asked, and the device goes on."""
_NO_ROOM: Final = (
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "DEVICE_ALLOCATION_FAILED",
    "HOST_ALLOCATION_FAILED",
    "not enough memory",
    "can't allocate memory",
)
"""Parts of the messages by which cuBLAS, cuDNN and torch's CPU allocator tell in a plain RuntimeError that memory ran out."""


class BadOutput(ModelFailed):
    """The network's answer broke the card's promises: a shape that is not its own, or a value that is no number.

    `rows` names the images; the answers of the others were sound, but are not returned.
    """

    code = "bad-output"
    title = "The model's answer is not usable"

    def __init__(self, message: str = "", *, rows: tuple[int, ...], **facts: object) -> None:
        super().__init__(message, rows=rows, **facts)
        self.rows = rows


class UnfitBatch(ModelFailed):
    """The batch has not the type, channels or side that the card states."""

    code = "unfit-batch"
    title = "The model input does not fit the model"


class OutOfDeviceMemory(Unavailable):
    """The batch does not fit the device's memory; a smaller one may.

    `is_guess`: a library said it, not torch's allocator. That may be something else, so it is believed once.
    """

    code = "out-of-device-memory"
    title = "The device's memory does not hold this batch"

    def __init__(self, message: str = "", *, is_guess: bool = False, **facts: object) -> None:
        super().__init__(message, **facts)
        self.is_guess = is_guess


class TooLargeForDevice(Quarantined):
    """Not even one image of the case fits the device's memory: it is set aside, for a second try would end like the first."""

    code = "too-large-for-device"
    title = "The device's memory does not hold one image of this case"
    advice = "Give the operator the case id: another program may have taken the device's memory. Submit the case again then."


def is_lost(error: RuntimeError) -> bool:
    """Whether the device is gone for this process."""
    return isinstance(error, DeviceLost) and getattr(error, "error_code", None) != _OUT_OF_MEMORY_CODE


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether torch says for certain that the device's memory is used up."""
    return isinstance(error, torch.OutOfMemoryError) or getattr(error, "error_code", None) == _OUT_OF_MEMORY_CODE


def sounds_out_of_memory(error: RuntimeError) -> bool:
    """Whether the words are those of a library that found no memory."""
    return any(part in str(error) for part in _NO_ROOM)
