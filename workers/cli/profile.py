"""`secondread profile`: what a model costs on a device."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline.errors import SecondreadError
from pipeline.inference.profiling.cards import FOLDER, as_json, keep
from pipeline.inference.profiling.choice import find_model
from pipeline.inference.profiling.plot import draw
from schemas.performance_card import PerformanceCard
from workers.cli.terminal import complain, progress_bar, remarks, results
from workers.cli.view.profile import profile_tables, profile_words
from workers.replicas import require_devices, torch_device, visible
from workers.settings import INFERENCE_VARIABLES, Settings, bare_environment
from workers.wiring import models_dir

DEFAULT_BATCHES = "1,2,4,8,16"
STEPS_BESIDE = 4
"""Loading, foretelling, counting, layers."""


def profile(  # noqa: PLR0913 - the parameters are the command's options
    model: Annotated[str, typer.Argument(help="The model, as name:version, or as name for its newest version.")],
    *,
    device: Annotated[str | None, typer.Option(help="cpu, cuda:0, cuda:MIG-<uuid>; the first of SECONDREAD_DEVICE where not said.")] = None,
    batches: Annotated[str, typer.Option(help="Batch sizes to measure.")] = DEFAULT_BATCHES,
    seconds: Annotated[float, typer.Option(min=0.0, help="Time for each batch size.")] = 2.0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the performance card here too.")] = None,
    plot_file: Annotated[Path | None, typer.Option("--plot", help="Draw the batch matrix here, as SVG.")] = None,
) -> None:
    """Measure a model as an inference process would run it, show the figures, and keep them as its performance card.

    An inference process that starts on the same device takes its durations from the card, and warms up sooner.
    """
    settings = Settings()
    place = _on_one_device(settings, device or settings.devices[0])
    sizes = _sizes(batches)
    try:
        folder = find_model(models_dir(settings), model)
        require_devices(place)
    except SecondreadError as error:
        complain(f"{error.code}: {error}.", error.advice)
        raise typer.Exit(1) from error
    card = _measured(folder, place, sizes, seconds)
    for table in profile_tables(card):
        results().print(table)
    for sentence in profile_words(card):
        results().print(sentence, soft_wrap=True)
    if json_file is not None:
        json_file.write_text(as_json(card), encoding="utf-8")
    if plot_file is not None:
        plot_file.write_text(draw(card), encoding="utf-8")
    kept = keep(card, settings.state_dir / FOLDER)
    remarks().print(f"Kept for inference processes that start from now on: {kept}", soft_wrap=True)


def _on_one_device(settings: Settings, device: str) -> Settings:
    """The settings of an inference process on that device."""
    place = Settings.model_validate({**dict(settings), "device": device})
    if len(place.devices) > 1:
        raise typer.BadParameter("name one device: figures of one say nothing about another", param_hint="--device")
    return place


def _sizes(batches: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(size) for size in batches.split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise typer.BadParameter("write whole numbers with commas between them, such as 1,2,4,8,16", param_hint="--batches")
    return sizes


def _measured(folder: Path, settings: Settings, sizes: tuple[int, ...], seconds: float) -> PerformanceCard:
    """Measure in a process that has the very environment of an inference process; show what it does meanwhile."""
    with progress_bar() as progress:
        task = progress.add_task(f"profiling {folder.name}", total=STEPS_BESIDE + len(set(sizes)))
        for told in _told(folder, settings, sizes, seconds):
            if "doing" in told:
                progress.update(task, description=told["doing"], advance=1)
            elif "card" in told:
                return PerformanceCard.model_validate(told["card"])
            else:
                refused = told["refused"]
                complain(f"{refused['code']}: {refused['message']}.", refused["advice"])
                raise typer.Exit(1)
    complain("The measuring process ended without a word.", "Its own words stand above.")
    raise typer.Exit(1)


def _told(folder: Path, settings: Settings, sizes: tuple[int, ...], seconds: float) -> Iterator[dict[str, Any]]:
    command = [sys.executable, "-m", "pipeline.inference.profiling", str(folder), torch_device(settings.device)]
    command += [str(settings.torch_threads), ",".join(map(str, sizes)), str(seconds)]
    environment = bare_environment() | INFERENCE_VARIABLES | visible(settings.device)
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        if process.stdout is None:
            raise RuntimeError("the measuring process has no output")
        try:
            yield from map(json.loads, process.stdout)
        finally:
            process.terminate()
