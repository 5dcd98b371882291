"""One loaded model: a batch in, probabilities and scores out."""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.utils import convert_conv2d_weight_memory_format

from pipeline.errors import ModelFailed, Unavailable
from pipeline.inference.card import load_card
from pipeline.inference.formats import load_network
from pipeline.inference.golden import read_golden
from pipeline.inference.seal import Seals, seal_on_device
from pipeline.inference.transfer import UInt8Array, transfer_for
from schemas.model_card import ModelCard

WARM_UP_SIZES: Final = (1, 2, 4, 8, 16)


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
    """The batch does not fit the device's memory; a smaller one may."""

    code = "out-of-device-memory"
    title = "The device's memory does not hold this batch"


@dataclass(frozen=True, slots=True)
class ModelOutput:
    """The answers to a batch, in its order."""

    probability: UInt8Array
    """(image, row, column), the probability of lesion x 255, rounded, on the model's grid."""
    scores: npt.NDArray[np.float32]
    """(image, score), 0 to 1, in the order of the card's `scores`."""
    seals: Seals
    """(image,), what `seal.py` makes of the row that the network was shown and the row that it answered."""


class ModelRunner:
    """A network on its device, and the card that says what it takes and gives.

    Parameters
    ----------
    card
        What the network was made for.
    network
        (image, channel, row, column) float32 on `device` to outline logits (image, 1, row, column) and score logits
        (image, score); in eval mode.
    folder
        Where the golden set lies.
    device
        Where the network is.

    Notes
    -----
    One batch runs at a time, whichever thread brings it: two at once would share the device and falsify the
    measured durations. The paths for CUDA are written after torch's documentation and have not been run on a device.
    """

    def __init__(self, card: ModelCard, network: nn.Module, *, folder: Path, device: torch.device) -> None:
        self.card = card
        self.device = device
        self._folder = folder
        # Rows of channels side by side suit the vector units of a CPU: measured 1.2 to 1.5 times as fast.
        self._layout = torch.channels_last if device.type == "cpu" else torch.contiguous_format
        self._network = convert_conv2d_weight_memory_format(network.to(device), self._layout)
        self._transfer = transfer_for(device)
        self._turn = threading.Lock()

    @classmethod
    def load(cls, folder: Path, *, device: str, threads: int) -> "ModelRunner":
        """Load a model folder onto a device, digests first. Sets torch's thread count for the whole process.

        Raises
        ------
        BadModelFolder
            The card is faulty, or it and the weights do not describe the same network.
        WeightsRefused
            The weights are missing, not those of the card, or not of the format that their name says.
        """
        set_threads(threads)
        card, target = load_card(folder), torch.device(device)
        return cls(card, load_network(folder, card, device=target), folder=folder, device=target)

    def run(self, batch: UInt8Array) -> ModelOutput:
        """Answer a batch.

        Parameters
        ----------
        batch
            (image, channel, row, column), uint8 as the tensor store holds it; one image or more.

        Raises
        ------
        UnfitBatch
            The batch is not what the card's input states. Nothing was run.
        BadOutput
            An answer has a wrong shape or holds a value that is not finite; `rows` names the images.
        OutOfDeviceMemory
            The device's memory does not hold the batch.
        ModelFailed
            The forward pass raised something else.
        """
        self._require_fit(batch)
        with self._turn:
            # Swallowed, not caught: inside an except block the failed frames would still own their tensors.
            with contextlib.suppress(torch.OutOfMemoryError):
                return self._answer(batch)
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
        raise OutOfDeviceMemory("the device's memory does not hold the batch", images=len(batch), device=str(self.device))

    def warm_up(self, sizes: Sequence[int] = WARM_UP_SIZES, *, clock: Callable[[], float] = time.perf_counter) -> dict[int, float]:
        """Run every batch size once untimed and once timed by `clock`; return L(b), the seconds that a batch of b images takes.

        Raises
        ------
        BadOutput, OutOfDeviceMemory, ModelFailed
            As `run`.
        """
        side_px, channels = self.card.input.side_px, self.card.input.channels
        noise = np.random.default_rng(0).integers(0, 256, (max(sizes), channels, side_px, side_px), dtype=np.uint8)
        durations_s: dict[int, float] = {}
        for size in sizes:
            self.run(noise[:size])
            begun_s = clock()
            self.run(noise[:size])
            durations_s[size] = clock() - begun_s
        return durations_s

    def check_golden(self) -> None:
        """Compare the answers to the folder's golden inputs with the stored ones; a card without a golden set passes.

        Raises
        ------
        GoldenSetFailed
            The answers differ by more than the tolerance, or the golden set cannot be read.
        WeightsRefused
            The golden set is not the one that the card names.
        BadOutput, UnfitBatch, OutOfDeviceMemory, ModelFailed
            As `run`.
        """
        golden = read_golden(self._folder, self.card)
        if golden is not None:
            answer = self.run(golden.inputs)
            golden.require_agreement(answer.probability, answer.scores)

    def _require_fit(self, batch: UInt8Array) -> None:
        stated = self.card.input
        wanted = (stated.channels, stated.side_px, stated.side_px)
        if batch.dtype != np.uint8 or batch.shape[1:] != wanted or not len(batch):
            raise UnfitBatch("the batch does not fit the card's input", shape=batch.shape, dtype=str(batch.dtype), wanted=wanted)

    def _answer(self, batch: UInt8Array) -> ModelOutput:
        with torch.inference_mode():
            try:
                shown = self._transfer.to_device(batch)
                outline, logits = self._forward(shown)
            except (torch.OutOfMemoryError, torch.AcceleratorError):
                raise  # the second means a device that answers no more: the process must end
            except RuntimeError as error:
                raise ModelFailed("the forward pass raised", images=len(batch), model=self.card.reference) from error
            self._require_shapes(outline, logits, images=len(batch))
            is_sound = torch.isfinite(outline).flatten(1).all(1) & torch.isfinite(logits).all(1)
            probability, scores = outline[:, 0].sigmoid().mul_(255).round_().to(torch.uint8), logits.sigmoid()
            arrived = self._transfer.to_host((probability, scores, is_sound, seal_on_device(shown, probability, scores)))
        bad_rows = tuple(int(row) for row in np.flatnonzero(~arrived[2].numpy()))
        if bad_rows:
            raise BadOutput("the model's answer is not finite", rows=bad_rows, model=self.card.reference)
        return ModelOutput(probability=arrived[0].numpy(), scores=arrived[1].numpy(), seals=arrived[3].numpy())

    def _forward(self, narrow: Tensor) -> tuple[Tensor, Tensor]:
        display = narrow.to(memory_format=self._layout).to(torch.float32).mul_(self.card.input.scale)
        outline, scores = self._network(display)
        return outline, scores

    def _require_shapes(self, outline: Tensor, scores: Tensor, *, images: int) -> None:
        side_px = self.card.input.side_px
        if outline.shape != (images, 1, side_px, side_px) or scores.shape != (images, len(self.card.scores)):
            raise BadOutput(
                "the model's answer has a wrong shape",
                rows=tuple(range(images)),
                outline=tuple(outline.shape),
                scores=tuple(scores.shape),
            )


def set_threads(threads: int) -> None:
    """Set how many threads one operation of torch uses, in every thread of the process; operations never run side by side."""
    torch.set_num_threads(threads)
    if torch.get_num_interop_threads() != 1:
        # Torch takes this once, before its first parallel work; later it refuses, and nothing is lost but idle threads.
        with contextlib.suppress(RuntimeError):
            torch.set_num_interop_threads(1)
