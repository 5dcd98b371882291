"""Stage 4: one batch through the model. Cases share the forward pass and nothing else.

Two things may go wrong with a batch as a whole, and both are settled within its firing, under the claims that it has:

- The device's memory does not hold it. Both halves run at once, one after the other, instead of going back to the waiting line.
  Nothing is lost by that: attempt and deadline stay what they were and nobody is charged; and a half that went back would be
  claimed again by the same device a moment later. What the memory held and what it did not is recorded, so that the next batch
  is cut to fit.
- The pass raises. The culprit is looked for by halving. A split over several idle devices would be quicker by the depth of the
  search, but this process has one device, and a half that is left to another goes through the line, where it meets strangers:
  its members would have to run alone, as suspects do, at a pass each.
"""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

import numpy as np

from pipeline.cases.identity import require_own
from pipeline.errors import IdentityMismatch, ModelFailed, SecondreadError, TensorMissing
from pipeline.inference.failures import BadOutput, OutOfDeviceMemory, TooLargeForDevice
from pipeline.inference.read_ahead import ReadAhead
from pipeline.inference.runner import ModelOutput, ModelRunner
from pipeline.inference.seal import seals_of
from pipeline.tensors.store import AnyArray, TensorStore
from schemas.tensor import TensorHandle
from schemas.work import CaseInput, CaseWork, InferredCase

OUTPUT_LIFETIME = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class BatchMember:
    """One case of a batch: its claim, and what its row holds."""

    case_id: UUID
    attempt: int
    received: CaseInput
    work: CaseWork

    @property
    def model_input(self) -> TensorHandle | None:
        """What the model is to be shown."""
        return self.work.prepared.model_input if self.work.prepared else None

    @property
    def image_count(self) -> int:
        """Rows that it takes in the batch."""
        return self.model_input.shape[0] if self.model_input else 0


Input = tuple[BatchMember, AnyArray]
"""A member and what its handle names: (image, channel, row, column), uint8."""


@dataclass(frozen=True, slots=True)
class Firing:
    """What is recorded with every result about the batch that it came from."""

    batch_id: str
    reason: str
    device: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Pass:
    """One forward pass, and whether the device's memory held it; one that failed otherwise says nothing about memory."""

    images: int
    outcome: Literal["done", "out of memory", "failed"]


@dataclass(slots=True)
class BatchResult:
    """What came of a batch, case by case."""

    inferred: dict[UUID, InferredCase] = field(default_factory=dict)
    failed: dict[UUID, SecondreadError] = field(default_factory=dict)
    forward_s: float = 0.0
    passes: list[Pass] = field(default_factory=list)

    @property
    def forward_passes(self) -> int:
        """How many passes it took."""
        return len(self.passes)


def infer(
    members: Sequence[BatchMember], firing: Firing, *, runner: ModelRunner, tensors: TensorStore, ahead: ReadAhead | None = None
) -> BatchResult:
    """Run the model on all members together; whoever cannot be read or breaks the pass fails alone.

    After a pass that fails the culprit is looked for; the others keep their company and have their answer.
    Whose row, tensor or place in the batch is not its own is withheld: `IdentityMismatch` stands in its place.
    What was read `ahead` is used for the members whose handles it was read by, and for nobody else.
    """
    ahead = ahead or ReadAhead()
    batch = _Batch(firing, runner, tensors, ahead)
    inputs: list[Input] = []
    for member in members:
        try:
            inputs.append((member, _read(member, tensors, ahead)))
        except SecondreadError as error:
            batch.result.failed[member.case_id] = error
    try:
        batch.run(inputs)
    finally:
        ahead.let_go()
    return batch.result


def _read(member: BatchMember, tensors: TensorStore, ahead: ReadAhead) -> AnyArray:
    require_own(member.work, case_id=member.case_id, received=member.received)
    if member.model_input is None:
        raise TensorMissing("the case has no model input", case_id=member.case_id)
    known = ahead.values.get(member.model_input)
    return tensors.get(member.model_input, case_id=member.case_id) if known is None else known


class _Batch:
    """What one firing works with, and what has come of it so far."""

    def __init__(self, firing: Firing, runner: ModelRunner, tensors: TensorStore, ahead: ReadAhead) -> None:
        self._firing, self._runner, self._tensors, self._ahead = firing, runner, tensors, ahead
        self._has_guessed = False
        self.result = BatchResult()

    def run(self, inputs: Sequence[Input]) -> None:
        """Answer all; whoever breaks a pass is found and fails."""
        waiting = list(inputs)
        while waiting:
            error = self._pass(waiting)
            if error is None:
                return
            waiting = self._after(error, waiting)

    def _after(self, error: SecondreadError, inputs: list[Input]) -> list[Input]:
        """Deal with a pass that failed; return who must be run again."""
        if isinstance(error, OutOfDeviceMemory):
            if len(inputs) == 1:
                self._run_in_parts(*inputs[0])
                return []
            # Nobody's fault: the halves may fit.
            middle = len(inputs) // 2
            self.run(inputs[:middle])
            return inputs[middle:]
        if isinstance(error, BadOutput):
            return self._without_owners(error.rows, inputs, error)
        return self._without_culprit(inputs, error)

    def _without_owners(self, bad_rows: Collection[int], inputs: list[Input], error: SecondreadError) -> list[Input]:
        """Fail the members whose rows the runner named; return the others."""
        again: list[Input] = []
        first = 0
        for member, values in inputs:
            last = first + len(values)
            if any(first <= row < last for row in bad_rows):
                self.result.failed[member.case_id] = error
            else:
                again.append((member, values))
            first = last
        return again

    def _without_culprit(self, suspects: list[Input], error: SecondreadError) -> list[Input]:
        """Find who breaks the pass by halving; return those of whom nothing is known yet.

        Of 16 members with one culprit the other 15 have their answers after at most five more passes: four tell the one of
        sixteen, and where all four held it, nobody has an answer before a fifth. A half is not run where its other half has
        passed: it holds the culprit, whose next try is alone.
        """
        unproven: list[Input] = []
        while len(suspects) > 1:
            middle = len(suspects) // 2
            tried, others = suspects[:middle], suspects[middle:]
            if self._pass(tried) is None:
                suspects = others
            else:
                suspects, unproven = tried, [*unproven, *others]
        self.result.failed[suspects[0][0].case_id] = error
        return unproven

    def _pass(self, inputs: Sequence[Input]) -> SecondreadError | None:
        """Run some together and park their answers; return why they have none."""
        begun_s = time.perf_counter()
        output = self._shown([values for _, values in inputs], [member.model_input for member, _ in inputs])
        if isinstance(output, SecondreadError):
            return output
        forward_s = time.perf_counter() - begun_s
        first = 0
        for member, values in inputs:
            rows = slice(first, first + len(values))
            self._keep(member, values, output, rows, forward_s)
            first += len(values)
        return None

    def _shown(self, parts: Sequence[AnyArray], handles: Sequence[TensorHandle | None]) -> ModelOutput | SecondreadError:
        """Show parts to the model together; return its answer, or why there is none."""
        images = sum(map(len, parts))
        staged = self._ahead.take_staged(handles, runner=self._runner)
        begun_s = time.perf_counter()
        try:
            output = self._runner.run_parts(parts) if staged is None else self._runner.run_staged(staged)
        except OutOfDeviceMemory as error:
            if error.is_guess and self._has_guessed:
                # Believed once: a library that says so again, of fewer images, means something else.
                self.result.passes.append(Pass(images, "failed"))
                return ModelFailed("the forward pass raised", images=images)
            self._has_guessed |= error.is_guess
            self.result.passes.append(Pass(images, "out of memory"))
            return error
        except ModelFailed as error:
            self.result.passes.append(Pass(images, "failed"))
            return error
        self.result.forward_s += time.perf_counter() - begun_s
        self.result.passes.append(Pass(images, "done"))
        return output

    def _run_in_parts(self, member: BatchMember, values: AnyArray) -> None:
        """Answer one case of which the device holds some images at a time; set it aside where it does not hold one."""
        begun_s, outputs = time.perf_counter(), list[ModelOutput]()
        room, first = len(values) // 2, 0
        while first < len(values):
            if room == 0:
                self.result.failed[member.case_id] = TooLargeForDevice(case_id=member.case_id, device=self._firing.device)
                return
            output = self._shown([values[first : first + room]], [])
            if isinstance(output, ModelOutput):
                outputs.append(output)
                first += room
            elif isinstance(output, OutOfDeviceMemory):
                room //= 2
            else:
                self.result.failed[member.case_id] = output
                return
        whole = ModelOutput(
            np.concatenate([output.probability for output in outputs]),
            np.concatenate([output.scores for output in outputs]),
            np.concatenate([output.seals for output in outputs]),
            outputs[0].precision,
        )
        self._keep(member, values, whole, slice(0, len(values)), time.perf_counter() - begun_s)

    def _keep(self, member: BatchMember, values: AnyArray, output: ModelOutput, rows: slice, forward_s: float) -> None:
        try:
            self.result.inferred[member.case_id] = self._kept(member, values, output, rows, forward_s)
        except SecondreadError as error:
            self.result.failed[member.case_id] = error

    def _kept(self, member: BatchMember, values: AnyArray, output: ModelOutput, rows: slice, forward_s: float) -> InferredCase:
        """Put one case's rows of the output into the tensor store, under its own case id, if they answer its own input."""
        probability, scores = output.probability[rows], output.scores[rows]
        if len(values) != len(probability) or not np.array_equal(seals_of(values, probability, scores), output.seals[rows]):
            raise IdentityMismatch("these rows of the batch answer another input", case_id=member.case_id, differs="batch row")
        handle = self._tensors.put(
            probability, case_id=member.case_id, generation=member.attempt, expires_at=self._firing.at + OUTPUT_LIFETIME
        )
        return InferredCase(
            model=self._runner.card.reference,
            weights_digest=self._runner.card.weights_sha256,
            probability=handle,
            scores=tuple(tuple(float(score) for score in row) for row in scores),
            model_input_digest=member.model_input.digest if member.model_input else None,
            batch_id=self._firing.batch_id,
            batch_size=len(output.probability),
            batch_position=rows.start,
            fired_because=self._firing.reason,
            device=self._firing.device,
            precision=output.precision,
            forward_s=forward_s,
        )
