"""Running a model folder as an inference process would before it serves it. Imported by who checks: it loads torch."""

from pathlib import Path

from pipeline.inference.runner import ModelRunner
from schemas.model_card import ModelCard
from workers.settings import Settings


def check(folder: Path, settings: Settings) -> tuple[ModelCard, dict[int, float]]:
    """Check digests, card, shapes, values and the golden set on the device of the settings; return the card and L(b).

    Raises
    ------
    SecondreadError
        Why the folder is refused.
    """
    runner = ModelRunner.load(folder.resolve(), device=settings.device, threads=settings.torch_threads)
    durations_s = runner.warm_up()
    runner.check_golden()
    return runner.card, durations_s
