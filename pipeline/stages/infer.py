"""Stage 4: one batch through the model. Cases share the forward pass and nothing else."""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

import numpy as np

from pipeline.cases.identity import require_own
from pipeline.errors import IdentityMismatch, ModelFailed, SecondreadError, TensorMissing
from pipeline.inference.runner import BadOutput, ModelOutput, ModelRunner, OutOfDeviceMemory
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


@dataclass(slots=True)
class BatchResult:
    """What came of a batch, case by case."""

    inferred: dict[UUID, InferredCase] = field(default_factory=dict)
    failed: dict[UUID, SecondreadError] = field(default_factory=dict)
    forward_s: float = 0.0
    forward_passes: int = 0


def infer(members: Sequence[BatchMember], firing: Firing, *, runner: ModelRunner, tensors: TensorStore) -> BatchResult:
    """Run the model on all members together; whoever cannot be read or breaks the pass fails alone.

    After a pass that fails the culprit is looked for; the others keep their company and have their answer.
    Whose row, tensor or place in the batch is not its own is withheld: `IdentityMismatch` stands in its place.
    """
    batch = _Batch(firing, runner, tensors)
    inputs: list[Input] = []
    for member in members:
        try:
            inputs.append((member, _read(member, tensors)))
        except SecondreadError as error:
            batch.result.failed[member.case_id] = error
    batch.run(inputs)
    return batch.result


def _read(member: BatchMember, tensors: TensorStore) -> AnyArray:
    require_own(member.work, case_id=member.case_id, received=member.received)
    if member.model_input is None:
        raise TensorMissing("the case has no model input", case_id=member.case_id)
    return tensors.get(member.model_input, case_id=member.case_id)


class _Batch:
    """What one firing works with, and what has come of it so far."""

    def __init__(self, firing: Firing, runner: ModelRunner, tensors: TensorStore) -> None:
        self._firing, self._runner, self._tensors = firing, runner, tensors
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
        if isinstance(error, OutOfDeviceMemory) and len(inputs) > 1:
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

        Of 16 members with one culprit the other 15 have their answers after at most five more passes. A half is not run
        where its other half has passed: it holds the culprit, whose next try is alone.
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
        self.result.forward_passes += 1
        begun_s = time.perf_counter()
        try:
            output = self._runner.run(np.concatenate([values for _, values in inputs]))
        except (ModelFailed, OutOfDeviceMemory) as error:
            return error
        forward_s = time.perf_counter() - begun_s
        self.result.forward_s += forward_s
        first = 0
        for member, values in inputs:
            rows = slice(first, first + len(values))
            try:
                self.result.inferred[member.case_id] = self._kept(member, values, output, rows, forward_s)
            except SecondreadError as error:
                self.result.failed[member.case_id] = error
            first += len(values)
        return None

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
            forward_s=forward_s,
        )
