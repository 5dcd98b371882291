"""The models that a process serves: only those whose digests, warm-up and golden set were in order."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import structlog

from pipeline.errors import SecondreadError, Unavailable
from pipeline.inference.card import survey
from pipeline.inference.profiling.prior import WarmUp
from pipeline.inference.runner import ModelRunner
from schemas.model_card import Precision

log = structlog.get_logger(__name__)


class ModelNotServed(Unavailable):
    """No model of this name and version passed its checks here; the case waits for a worker that has it."""

    code = "model-not-served"
    title = "The model of this case is not served here"


class ModelRegistry:
    """Loads every model folder of `models_dir` and serves those that pass.

    Parameters
    ----------
    models_dir
        One folder a model, each with its `card.toml`.
    device
        As torch names it: `cpu`, `cuda:0`.
    threads
        Threads of one torch operation, for the whole process.
    precision
        What the networks compute in, where a model's card and its golden set allow it.
    warm_up
        Which batch sizes are warmed up, and what is known of their durations from an earlier measurement.
    """

    def __init__(
        self,
        models_dir: Path,
        *,
        device: str = "cpu",
        threads: int = 1,
        precision: Precision = "float32",
        warm_up: WarmUp | None = None,
    ) -> None:
        self._models_dir = models_dir
        self._device = device
        self._threads = threads
        self._precision: Precision = precision
        self._warm_up = warm_up or WarmUp()
        self._runners: dict[str, ModelRunner] = {}
        self._durations_s: dict[str, dict[int, float]] = {}
        self._refused: dict[str, SecondreadError] = {}

    def load(self) -> None:
        """Verify, load, warm and check every folder; a bad one is refused and named, the others are served.

        Raises
        ------
        BadModelFolder
            `models_dir` itself is no readable folder.
        """
        found = survey(self._models_dir)
        self._refused = dict(found.refused)
        for reference, (_, folder) in found.cards.items():
            self._admit(reference, folder)
        for name, error in self._refused.items():
            log.error("model_folder_refused", folder=name, code=error.code, reason=str(error), facts=error.facts)

    def _admit(self, reference: str, folder: Path) -> None:
        try:
            runner = ModelRunner.load(folder, device=self._device, threads=self._threads, precision=self._precision)
            durations_s = self._warm_up.durations_s(runner)
            runner.check_golden()
        except SecondreadError as error:
            self._refused[folder.name] = error
            return
        # Last, and both at once: whoever finds the runner finds a model that passed.
        self._durations_s[reference] = durations_s
        self._runners[reference] = runner

    @property
    def served(self) -> tuple[str, ...]:
        """The models that passed, as `name:version`."""
        return tuple(self._runners)

    @property
    def refused(self) -> Mapping[str, SecondreadError]:
        """Why a folder is not served, by the folder's name."""
        return MappingProxyType(self._refused)

    def runner(self, reference: str) -> ModelRunner:
        """Return the runner of a served model.

        Raises
        ------
        ModelNotServed
            No folder has this `name:version`, or it was refused.
        """
        try:
            return self._runners[reference]
        except KeyError:
            raise ModelNotServed("the model is not served here", model=reference) from None

    def durations_s(self, reference: str) -> Mapping[int, float]:
        """L(b) of a served model: seconds that a batch takes, by its size.

        Raises
        ------
        ModelNotServed
            As `runner`.
        """
        self.runner(reference)
        return self._durations_s[reference]
