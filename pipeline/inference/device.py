"""What a process asks of its device before the first batch."""

import contextlib

import torch


def set_threads(threads: int) -> None:
    """Set how many threads one operation of torch uses, in every thread of the process; operations never run side by side."""
    torch.set_num_threads(threads)
    if torch.get_num_interop_threads() != 1:
        # Torch takes this once, before its first parallel work; later it refuses, and nothing is lost but idle threads.
        with contextlib.suppress(RuntimeError):
            torch.set_num_interop_threads(1)


def share_device(device: str, *, memory_fraction: float) -> None:
    """Bound the memory that this process takes of a CUDA device, and let float32 mean float32 there; a CPU has neither question.

    With the bound a neighbour on the device costs a batch that does not fit, which is dealt with, and not the neighbour's life.
    """
    place = torch.device(device)
    if place.type != "cuda":
        return
    torch.cuda.memory.set_per_process_memory_fraction(memory_fraction, place)
    # The default is 10 bits of mantissa in convolutions; what is recorded as float32 must be that.
    torch.backends.cudnn.conv.fp32_precision = "ieee"  # type: ignore[attr-defined]
    torch.backends.cuda.matmul.fp32_precision = "ieee"
