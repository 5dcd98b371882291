"""The models that a process serves: only those whose digests, warm-up and golden set were in order."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import structlog

from pipeline.errors import ModelFailed, SecondreadError, Unavailable
from pipeline.inference.card import BadModelFolder, survey
from pipeline.inference.failures import DeviceLost
from pipeline.inference.profiling.prior import WarmUp
from pipeline.inference.runner import ModelRunner
from pipeline.observability import metrics
from schemas.model_card import Precision

log = structlog.get_logger(__name__)


class ModelNotServed(Unavailable):
    """No model of this name and version passed its checks here; the case waits for a worker that has it."""

    code = "model-not-served"
    title = "The model of this case is not served here"


class ModelRegistry:
    """Loads model folders of `models_dir` and serves those that pass, several versions of a model side by side.

    Parameters
    ----------
    models_dir
        One folder a version, each with its `card.toml`.
    device
        As torch names it: `cpu`, `cuda:0`.
    threads
        Threads of one torch operation, for the whole process.
    precision
        What the networks compute in, where a model's card and its golden set allow it.
    warm_up
        Which batch sizes are warmed up, and what is known of their durations from an earlier measurement.

    Notes
    -----
    One thread admits and drops; others may ask meanwhile. What they see changes at once and last: whoever finds a runner
    finds a model that passed.
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
        self._retired: frozenset[str] = frozenset()

    def load(self) -> None:
        """Verify, load, warm and check every folder; a bad one is refused and named, the others are served.

        Raises
        ------
        BadModelFolder
            `models_dir` itself is no readable folder.
        """
        found = survey(self._models_dir)
        for name, error in found.refused.items():
            self._refuse(name, error)
        for reference, (_, folder) in found.cards.items():
            self._admit(reference, folder, clock=time.perf_counter)

    def admit(self, reference: str, *, in_background: bool = False) -> SecondreadError | None:
        """Load one version of the folder as it is now and serve it, or say why it is refused. What is served goes on.

        `in_background` says that this thread yields to others: its durations are then its own processor time, where the
        device is one thread of this machine, and not what the others left it.

        Raises
        ------
        BadModelFolder
            `models_dir` itself is no readable folder.
        """
        if reference in self._runners:
            self._retired -= {reference}
            return None
        found = survey(self._models_dir)
        if reference not in found.cards:
            error = BadModelFolder(f"{reference}: no folder of {self._models_dir.name} has a usable card of this version", model=reference)
            self._refuse(reference, error)
            return error
        is_own_time = in_background and self._device == "cpu" and self._threads == 1
        return self._admit(reference, found.cards[reference][1], clock=time.thread_time if is_own_time else time.perf_counter)

    def retire(self, reference: str) -> None:
        """Serve a version no more, but keep its runner for who has chosen it already, until it is dropped or admitted again."""
        self._retired |= {reference}

    def drop(self, reference: str) -> None:
        """Let go of a version; its memory is free once the batch that runs on it, if any, is done."""
        self._runners = {each: runner for each, runner in self._runners.items() if each != reference}
        self._retired -= {reference}
        self._durations_s.pop(reference, None)
        metrics.MODEL_LOADED.labels(reference).set(0)

    def _admit(self, reference: str, folder: Path, *, clock: Callable[[], float]) -> SecondreadError | None:
        try:
            runner = ModelRunner.load(folder, device=self._device, threads=self._threads, precision=self._precision)
            durations_s = self._warm_up.durations_s(runner, clock=clock)
            runner.check_golden()
        except DeviceLost:
            raise  # the process must end
        except SecondreadError as error:
            self._refuse(folder.name, error)
            return error
        except Exception as error:  # the edge: a foreign file may make a library raise anything
            log.warning("model_folder_raised", folder=folder.name, exc_info=error)
            refusal = ModelFailed(f"{folder.name}: it could not be loaded and run ({type(error).__name__})", model=reference)
            self._refuse(folder.name, refusal)
            return refusal
        # Last, and both at once: whoever finds the runner finds a model that passed.
        self._durations_s[reference] = durations_s
        self._runners = self._runners | {reference: runner}
        self._refused.pop(folder.name, None)
        metrics.MODEL_LOADED.labels(reference).set(1)
        return None

    def _refuse(self, name: str, error: SecondreadError) -> None:
        self._refused[name] = error
        metrics.MODELS_REFUSED.labels(error.code).inc()
        log.error("model_folder_refused", folder=name, code=error.code, reason=str(error), facts=error.facts)

    @property
    def served(self) -> tuple[str, ...]:
        """The models that passed, as `name:version`."""
        return tuple(reference for reference in self._runners if reference not in self._retired)

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
