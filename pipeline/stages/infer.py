"""Stage 4: one batch through the model. Cases share the forward pass and nothing else."""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

import numpy as np

from pipeline.errors import ModelFailed, SecondreadError
from pipeline.inference.runner import BadOutput, ModelOutput, ModelRunner, OutOfDeviceMemory
from pipeline.tensors.store import AnyArray, TensorStore
from schemas.tensor import TensorHandle
from schemas.work import InferredCase

OUTPUT_LIFETIME = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class BatchMember:
    """One case of a batch: its claim and its model input."""

    case_id: UUID
    attempt: int
    model_input: TensorHandle


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
    """
    batch = _Batch(firing, runner, tensors)
    inputs: list[Input] = []
    for member in members:
        try:
            inputs.append((member, tensors.get(member.model_input, case_id=member.case_id)))
        except SecondreadError as error:
            batch.result.failed[member.case_id] = error
    batch.run(inputs)
    return batch.result


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
            self._park(member, output, slice(first, first + len(values)), forward_s)
            first += len(values)
        return None

    def _park(self, member: BatchMember, output: ModelOutput, rows: slice, forward_s: float) -> None:
        """Put one case's rows of the output into the tensor store, under its own case id."""
        try:
            handle = self._tensors.put(
                output.probability[rows],
                case_id=member.case_id,
                generation=member.attempt,
                expires_at=self._firing.at + OUTPUT_LIFETIME,
            )
        except SecondreadError as error:
            self.result.failed[member.case_id] = error
            return
        self.result.inferred[member.case_id] = InferredCase(
            model=self._runner.card.reference,
            weights_digest=self._runner.card.weights_sha256,
            probability=handle,
            scores=tuple(tuple(float(score) for score in row) for row in output.scores[rows]),
            batch_id=self._firing.batch_id,
            batch_size=len(output.probability),
            batch_position=rows.start,
            fired_because=self._firing.reason,
            device=self._firing.device,
            forward_s=forward_s,
        )
