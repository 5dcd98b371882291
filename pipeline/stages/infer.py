"""Stage 4: one batch through the model. Cases share the forward pass and nothing else."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

import numpy as np

from pipeline.errors import ModelFailed, SecondreadError
from pipeline.inference.runner import ModelOutput, ModelRunner, OutOfDeviceMemory
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

    A pass that fails is split in two until the culprit is by itself, so the others keep their company and their answer.
    """
    batch = _Batch(firing, runner, tensors)
    inputs: list[tuple[BatchMember, AnyArray]] = []
    for member in members:
        try:
            inputs.append((member, tensors.get(member.model_input, case_id=member.case_id)))
        except SecondreadError as error:
            batch.result.failed[member.case_id] = error
    if inputs:
        batch.run(inputs)
    return batch.result


class _Batch:
    """What one firing works with, and what has come of it so far."""

    def __init__(self, firing: Firing, runner: ModelRunner, tensors: TensorStore) -> None:
        self._firing, self._runner, self._tensors = firing, runner, tensors
        self.result = BatchResult()

    def run(self, inputs: Sequence[tuple[BatchMember, AnyArray]]) -> None:
        self.result.forward_passes += 1
        begun_s = time.perf_counter()
        try:
            output = self._runner.run(np.concatenate([values for _, values in inputs]))
        except (ModelFailed, OutOfDeviceMemory) as error:
            if len(inputs) == 1:
                self.result.failed[inputs[0][0].case_id] = error
                return
            middle = len(inputs) // 2
            self.run(inputs[:middle])
            self.run(inputs[middle:])
            return
        forward_s = time.perf_counter() - begun_s
        self.result.forward_s += forward_s
        first = 0
        for member, values in inputs:
            self._park(member, output, slice(first, first + len(values)), forward_s)
            first += len(values)

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
