"""The injections: what a slip of ours, a crossed reply or a reused slot would do, done on purpose."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast
from uuid import UUID

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from pipeline.flow import FETCH
from pipeline.inference.registry import ModelRegistry
from pipeline.inference.runner import ModelOutput, ModelRunner
from pipeline.persistence.uploads import ObjectPlace
from schemas.tensor import TensorHandle
from schemas.work import PreparedCase
from tests.integration.identity.house import Bytes, Known
from workers.endings import Reported, Written
from workers.reporting import ReportingWork
from workers.stage_task import PoolRuntime

PREPARED_KINDS: Final = ("input key", "input handle", "stored handle", "whole work")
INFERRED_KINDS: Final = ("map key", "map handle", "stored key", "whole answer", "answer to an older input")
BATCH_KINDS: Final = ("before the network", "after the network", "maps alone", "scores alone", "bytes of the batch before")
REPORT_KINDS: Final = ("another's report", "another's report, renamed", "another's output")


def _pointed_at(handle: TensorHandle | None, other: TensorHandle | None) -> TensorHandle:
    assert handle is not None
    assert other is not None
    return handle.model_copy(update={"key": other.key})


def foreign_prepared(own: Known, other: Known, kind: str) -> PreparedCase:
    """What stands in a row in place of its own preparation."""
    mine, theirs = own.prepared, other.prepared
    assert mine is not None
    assert theirs is not None
    match kind:
        case "input key":
            return mine.model_copy(update={"model_input": _pointed_at(mine.model_input, theirs.model_input)})
        case "input handle":
            return mine.model_copy(update={"model_input": theirs.model_input})
        case "stored handle":
            return mine.model_copy(update={"instances": (_with_stored(mine, theirs.instances[0].stored),)})
    return theirs


def foreign_inferred(own: Known, other: Known, kind: str) -> dict[str, Any]:
    """The work that stands in a row when its answer, or the image to show it on, is another case's."""
    mine, theirs, prepared = own.inferred, other.inferred, own.prepared
    assert mine is not None
    assert theirs is not None
    assert prepared is not None
    assert other.prepared is not None
    match kind:
        case "map key":
            return {"inferred": mine.model_copy(update={"probability": _pointed_at(mine.probability, theirs.probability)})}
        case "map handle":
            return {"inferred": mine.model_copy(update={"probability": theirs.probability})}
        case "stored key":
            stored = _pointed_at(prepared.instances[0].stored, other.prepared.instances[0].stored)
            return {"inferred": mine, "prepared": prepared.model_copy(update={"instances": (_with_stored(prepared, stored),)})}
        case "answer to an older input":
            return {"inferred": mine.model_copy(update={"model_input_digest": theirs.model_input_digest})}
    return {"inferred": theirs}


def _with_stored(prepared: PreparedCase, stored: TensorHandle | None) -> Any:
    return prepared.instances[0].model_copy(update={"stored": stored})


def reuse_slot(folder: Path, handle: TensorHandle, older: TensorHandle) -> None:
    """The slot that the handle names holds what was there before."""
    (folder / older.key).replace(folder / handle.key)


class CrossedPlace(ObjectPlace):
    """An upload store whose replies go to the wrong caller."""

    def __init__(self, url: str, crossed: Mapping[str, str]) -> None:
        super().__init__(url)
        self._crossed = crossed

    def read(self, key: str, *, limit_s: float = FETCH.limit_s) -> bytes:
        """Give what was asked for under another key."""
        return super().read(self._crossed.get(key, key), limit_s=limit_s)


class SlippedRunner:
    """A model runner between which and the rest the rows of a batch change places."""

    def __init__(self, runner: ModelRunner, chance: np.random.Generator) -> None:
        self._runner, self._chance = runner, chance
        self._before: Bytes | None = None
        self._calls = 0
        self.card = runner.card
        self.stages_ahead = False
        self.slipped: list[bytes] = []
        """What was to be shown in each row whose answer is another's."""

    def run_parts(self, parts: Sequence[Bytes]) -> ModelOutput:
        """Answer a batch, and mix up who gets which answer."""
        batch = np.concatenate(parts)
        kind = BATCH_KINDS[self._calls % len(BATCH_KINDS)]
        before, self._before = self._before, batch.copy()
        if len(batch) == 1 or (kind == BATCH_KINDS[-1] and (before is None or len(before) != len(batch))):
            return self._runner.run(batch)
        self._calls += 1
        self.slipped += [row.tobytes() for row in batch]
        order = _derangement(len(batch), self._chance)
        if kind == BATCH_KINDS[0]:
            return self._runner.run(batch[order])
        if kind == BATCH_KINDS[-1]:
            return self._runner.run(cast(Bytes, before))
        output = self._runner.run(batch)
        if kind == "maps alone":
            return replace(output, probability=output.probability[order])
        if kind == "scores alone":
            return replace(output, scores=output.scores[order])
        return ModelOutput(output.probability[order], output.scores[order], output.seals[order])


def _derangement(count: int, chance: np.random.Generator) -> npt.NDArray[np.intp]:
    """An order in which nobody stands where it stood."""
    ring = chance.permutation(count)
    order = np.empty(count, dtype=np.intp)
    order[ring] = np.roll(ring, 1)
    return order


class Echo(nn.Module):
    """A network whose map is its input and whose scores are the input's mean and spread: each image has an answer of its own."""

    def forward(self, display: Tensor) -> tuple[Tensor, Tensor]:
        """Answer a batch with logits."""
        return 8 * (display - 0.5), torch.stack((display.mean((1, 2, 3)), display.std((1, 2, 3))), dim=1)


class SlippedRegistry(ModelRegistry):
    """Serves a slipped runner of an `Echo` for each model."""

    def __init__(self, registry: ModelRegistry, chance: np.random.Generator) -> None:
        self._registry = registry
        self.runners = {
            reference: SlippedRunner(
                ModelRunner(registry.runner(reference).card, Echo().eval(), folder=Path(), device=torch.device("cpu")), chance
            )
            for reference in registry.served
        }

    @property
    def served(self) -> tuple[str, ...]:
        """As the registry."""
        return self._registry.served

    def durations_s(self, reference: str) -> Mapping[int, float]:
        """As the registry."""
        return self._registry.durations_s(reference)

    def runner(self, reference: str) -> ModelRunner:
        """The slipped one."""
        return cast(ModelRunner, self.runners[reference])


class CrossedReporting(ReportingWork):
    """The reporting pool, which posts the results of cases that finish together under each other's ids; the last of them honestly."""

    def __init__(self, runtime: PoolRuntime) -> None:
        super().__init__(runtime)
        self.crossed: set[UUID] = set()
        self._calls = 0

    def write(self, done: Sequence[Reported]) -> Written:
        """Write, crossed; fewer than two have nobody to be exchanged with."""
        *swapped, honest = done
        if len(swapped) < 2:
            return super().write(done)
        kinds = REPORT_KINDS if all(each.report.model_output_digest for each in done) else REPORT_KINDS[:2]
        kind = kinds[self._calls % len(kinds)]
        self._calls += 1
        self.crossed |= {each.case.case_id for each in swapped}
        others = [*swapped[1:], *swapped[:1]]
        return super().write([*(_posted(mine, theirs, kind) for mine, theirs in zip(swapped, others, strict=True)), honest])


def _posted(mine: Reported, theirs: Reported, kind: str) -> Reported:
    report = theirs.report
    if kind == "another's report, renamed":
        report = report.model_copy(update={"case_id": mine.report.case_id})
    if kind == "another's output":
        report = mine.report.model_copy(update={"model_output_digest": theirs.report.model_output_digest})
    return replace(mine, report=report)
