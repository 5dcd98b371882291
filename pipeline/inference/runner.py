"""One loaded model: a batch in, probabilities and scores out."""

import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import structlog
import torch
from torch import nn

from pipeline.errors import ModelFailed
from pipeline.inference.card import load_card
from pipeline.inference.device import set_threads
from pipeline.inference.failures import BadOutput, OutOfDeviceMemory, UnfitBatch, is_lost, is_out_of_memory, sounds_out_of_memory
from pipeline.inference.formats import load_network
from pipeline.inference.forward import Answers, Forward
from pipeline.inference.golden import GoldenSetFailed, read_golden
from pipeline.inference.graphs import Eager, Graphed, Program
from pipeline.inference.seal import Seals
from pipeline.inference.transfer import CudaTransfer, Staged, UInt8Array, transfer_for
from schemas.model_card import ModelCard, Precision

WARM_UP_SIZES: Final = (1, 2, 4, 8, 16)
"""What every model is ready for, whatever the configured ceiling: a case may hold so many images by itself."""

log = structlog.get_logger(__name__)
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class ModelOutput:
    """The answers to a batch, in its order."""

    probability: UInt8Array
    """(image, row, column), the probability of lesion x 255, rounded, on the model's grid."""
    scores: npt.NDArray[np.float32]
    """(image, score), 0 to 1, in the order of the card's `scores`."""
    seals: Seals
    """(image,), what `seal.py` makes of the row that the network was shown and the row that it answered."""
    precision: Precision = "float32"
    """What the network computed in."""


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
    precision
        Of the network's arithmetic.

    Notes
    -----
    One batch runs at a time, whichever thread brings it: two at once would share the device and falsify the
    measured durations. The next may be staged meanwhile where `stages_ahead` says so. The paths for CUDA are written
    after torch's documentation and have not been run on a device.
    """

    def __init__(
        self, card: ModelCard, network: nn.Module, *, folder: Path, device: torch.device, precision: Precision = "float32"
    ) -> None:
        self.card, self.device, self.precision = card, device, precision
        self._folder = folder
        side_px, channels = card.input.side_px, card.input.channels
        self._transfer = transfer_for(device, capacity_bytes=WARM_UP_SIZES[-1] * channels * side_px**2)
        self._forward = Forward(network, card, device=device, precision=precision)
        self._program: Program = (
            Graphed(self._forward, device, self._transfer.stream) if isinstance(self._transfer, CudaTransfer) else Eager(self._forward)
        )
        self._turn = threading.Lock()
        self._warmed: tuple[int, ...] = ()

    @property
    def network(self) -> nn.Module:
        """The network on its device, for whoever measures it; answers come from `run` alone."""
        return self._forward.network

    @classmethod
    def load(cls, folder: Path, *, device: str, threads: int, precision: Precision = "float32") -> "ModelRunner":
        """Load a model folder onto a device, digests first. Sets torch's thread count for the whole process.

        A precision other than float32 is taken where the card allows it and the golden set confirms it at each batch size.

        Raises
        ------
        BadModelFolder
            The card is faulty, or it and the weights do not describe the same network.
        WeightsRefused
            The weights are missing, not those of the card, or not of the format that their name says.
        """
        set_threads(threads)
        card, place = load_card(folder), torch.device(device)
        network = load_network(folder, card, device=place)
        if precision != "float32" and precision in card.precisions and card.golden is not None:
            narrowed = cls(card, network, folder=folder, device=place, precision=precision)
            if narrowed._keeps_golden_answers():
                return narrowed
        return cls(card, network, folder=folder, device=place)

    @property
    def stages_ahead(self) -> bool:
        """Whether the next batch may be staged while one runs."""
        return self._transfer.stages_ahead

    def run(self, batch: UInt8Array) -> ModelOutput:
        """Answer (image, channel, row, column), uint8 as the tensor store holds it; one image or more. Raises as `run_parts`."""
        return self.run_parts([batch])

    def run_parts(self, parts: Sequence[UInt8Array]) -> ModelOutput:
        """Answer a batch that lies in several places.

        Parameters
        ----------
        parts
            Each (image, channel, row, column), uint8 as the tensor store holds it; one image or more in all.

        Raises
        ------
        UnfitBatch
            A part is not what the card's input states. Nothing was run.
        BadOutput
            An answer has a wrong shape or holds a value that is not finite; `rows` names the images.
        OutOfDeviceMemory
            The device's memory does not hold the batch.
        ModelFailed
            The forward pass raised something else.
        """
        return self.run_staged(self.stage(parts))

    def stage(self, parts: Sequence[UInt8Array]) -> Staged:
        """Put a batch together and send it to the device; `run_staged` or `discard` is owed for it.

        Raises
        ------
        UnfitBatch
            A part is not what the card's input states.
        OutOfDeviceMemory
            There is no room for it.
        """
        for part in parts:
            self._require_fit(part)
        return self._on_device(lambda: self._transfer.stage(parts), images=sum(map(len, parts)))

    def discard(self, staged: Staged) -> None:
        """Let go of a batch that is not to run."""
        self._transfer.release(staged)

    def run_staged(self, staged: Staged) -> ModelOutput:
        """Answer a batch that was staged. Raises as `run_parts`."""
        try:
            with self._turn:
                answers = self._on_device(lambda: self._answer(staged), images=len(staged.shown))
        finally:
            self._transfer.release(staged)
        bad_rows = tuple(int(row) for row in np.flatnonzero(~answers.is_sound.numpy()))
        if bad_rows:
            raise BadOutput("the model's answer is not finite", rows=bad_rows, model=self.card.reference)
        return ModelOutput(answers.probability.numpy(), answers.scores.numpy(), answers.seals.numpy(), self.precision)

    def warm_up(self, sizes: Sequence[int] = WARM_UP_SIZES, *, clock: Callable[[], float] = time.perf_counter) -> dict[int, float]:
        """Run every batch size once untimed and once timed by `clock`; return L(b), the seconds that a batch of b images takes.

        The largest comes first: the memory that it takes is kept, and the others fit into it. Sizes that the device's memory
        does not hold are left out.

        Raises
        ------
        OutOfDeviceMemory
            Not even the smallest fits.
        BadOutput, ModelFailed
            As `run_parts`.
        """
        side_px, channels = self.card.input.side_px, self.card.input.channels
        noise = np.random.default_rng(0).integers(0, 256, (max(sizes), channels, side_px, side_px), dtype=np.uint8)
        durations_s: dict[int, float] = {}
        for size in sorted(sizes, reverse=True):
            try:
                self._prepare(noise[:size])
                self.run(noise[:size])
                begun_s = clock()
                self.run(noise[:size])
                durations_s[size] = clock() - begun_s
            except OutOfDeviceMemory:
                log.warning("size_does_not_fit", model=self.card.reference, images=size, device=str(self.device))
                if size == min(sizes):
                    raise
        self._warmed = tuple(sorted(durations_s))
        return {size: durations_s[size] for size in self._warmed}

    def check_golden(self) -> None:
        """Compare the answers to the folder's golden inputs with the stored ones; a card without a golden set passes.

        The inputs are asked in batches of every size that was warmed up, repeated or cut to fill it: each size may have kernels of
        its own. Where none was, they are asked together.

        Raises
        ------
        GoldenSetFailed
            The answers differ by more than the tolerance, or the golden set cannot be read.
        WeightsRefused
            The golden set is not the one that the card names.
        BadOutput, UnfitBatch, OutOfDeviceMemory, ModelFailed
            As `run_parts`.
        """
        golden = read_golden(self._folder, self.card)
        if golden is None:
            return
        for size in self._warmed or (len(golden.inputs),):
            asked = golden.filling(size)
            answer = self.run(asked.inputs)
            asked.require_agreement(answer.probability, answer.scores)

    def _keeps_golden_answers(self) -> bool:
        self._warmed = WARM_UP_SIZES
        try:
            self.check_golden()
        except (GoldenSetFailed, BadOutput, OutOfDeviceMemory) as error:
            log.warning("precision_not_confirmed", model=self.card.reference, precision=self.precision, code=error.code, facts=error.facts)
            return False
        return True

    def _require_fit(self, batch: UInt8Array) -> None:
        stated = self.card.input
        wanted = (stated.channels, stated.side_px, stated.side_px)
        if batch.dtype != np.uint8 or batch.shape[1:] != wanted or not len(batch):
            raise UnfitBatch("the batch does not fit the card's input", shape=batch.shape, dtype=str(batch.dtype), wanted=wanted)

    def _prepare(self, batch: UInt8Array) -> None:
        staged = self.stage([batch])

        def prepare() -> None:
            with torch.inference_mode(), self._transfer.computing():
                self._program.prepare(self._transfer.arrived(staged))

        try:
            with self._turn:
                self._on_device(prepare, images=len(batch))
        finally:
            self._transfer.release(staged)

    def _answer(self, staged: Staged) -> Answers:
        with torch.inference_mode(), self._transfer.computing():
            return Answers(*self._transfer.to_host(self._program(self._transfer.arrived(staged))))

    def _on_device(self, work: Callable[[], Made], *, images: int) -> Made:
        """Do the work, and tell what became of it in our own errors."""
        try:
            return work()
        except RuntimeError as error:
            if is_lost(error):
                raise  # the device answers no more: the process must end
            is_guess = not is_out_of_memory(error)
            if is_guess and not sounds_out_of_memory(error):
                # The traceback goes into the log with the error; the tensors of its frames must not stay with it.
                traceback.clear_frames(error.__traceback__)
                self._require_device()
                raise ModelFailed("the forward pass raised", images=images, model=self.card.reference) from error
        # Out of the except block: within it the failed frames would still own their tensors.
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        raise OutOfDeviceMemory("the device's memory does not hold the batch", is_guess=is_guess, images=images, device=str(self.device))

    def _require_device(self) -> None:
        """What a library raises may be the first word of a device that is lost; the next call to it would say so."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def sizes_up_to(images: int) -> tuple[int, ...]:
    """The batch sizes to be warmed up for a ceiling of so many images: powers of two, and the ceiling."""
    sizes = list(WARM_UP_SIZES)
    while sizes[-1] < images:
        sizes.append(min(2 * sizes[-1], images))
    return tuple(sizes)
