"""`secondread simulate`: the batching rule beside those of others, in virtual time, with the bars that it must reach."""

import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from pipeline.batching.simulation.bars import Verdict, judge
from pipeline.batching.simulation.chart import chart
from pipeline.batching.simulation.measures import Figures, mean_of
from pipeline.batching.simulation.scenarios import OURS, SCENARIOS, Outcome, Scenario, bound, play
from workers.cli.terminal import complain, progress_bar, results

NAMES = {scenario.name: scenario for scenario in SCENARIOS}
FALLS_SHORT = 1
USAGE = 2
Job = tuple[str, str, int]
"""Scenario, rule, seed."""


def simulate(
    scenario: Annotated[list[str] | None, typer.Option(help=f"Play this one alone; may be repeated. {', '.join(NAMES)}.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Streams of images for each scenario; figures are their means.")] = 3,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all figures here.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the misses here, as SVG.")] = None,
) -> None:
    """Run the product's own batching code in virtual time, beside ten other rules; fail where a bar is not reached."""
    if unknown := [name for name in scenario or () if name not in NAMES]:
        complain(f"No such scenario: {', '.join(unknown)}.", f"There are {', '.join(NAMES)}.")
        raise typer.Exit(USAGE)
    outcomes = play_all([NAMES[name] for name in scenario or NAMES], seeds)
    verdicts = judge(outcomes)
    results().print(figures_table(outcomes))
    results().print(bars_table(verdicts))
    if json_file is not None:
        _write(json_file, json.dumps(as_json(outcomes, verdicts, seeds), indent=1) + "\n")
    if plot is not None:
        _write(plot, chart(outcomes))
    if not all(verdict.is_kept for verdict in verdicts):
        raise typer.Exit(FALLS_SHORT)


def play_all(scenarios: Sequence[Scenario], seeds: int) -> list[Outcome]:
    """Play every rule in every scenario, a process a core; show how far it is."""
    jobs = [(one.name, rule, seed) for one in scenarios for rule in one.rules for seed in range(seeds)]
    found: dict[Job, Figures] = {}
    with progress_bar() as bar, ProcessPoolExecutor(os.cpu_count()) as pool:
        task = bar.add_task("Simulating", total=len(jobs))
        waiting = {pool.submit(_play, job): job for job in jobs}
        for done in as_completed(waiting):
            found[waiting[done]] = done.result()
            bar.advance(task)
    return [
        Outcome(one, {rule: mean_of([found[one.name, rule, seed] for seed in range(seeds)]) for rule in one.rules}, bound(one, seeds=seeds))
        for one in scenarios
    ]


def _play(job: Job) -> Figures:
    name, rule, seed = job
    return play(NAMES[name], NAMES[name].rules[rule], seed=seed)


def figures_table(outcomes: Sequence[Outcome]) -> Table:
    """One row a rule, one column a scenario: 99th percentile and missed answers."""
    table = Table(
        title="99th percentile, s (fast: ms in line and device); below it missed answers, %",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    table.add_column("Rule", no_wrap=True)
    for outcome in outcomes:
        unit = ", ms" if _is_fast(outcome) else ""
        table.add_column(f"{outcome.scenario.name}{unit}", justify="right", no_wrap=True)
    rules = list(dict.fromkeys(rule for outcome in outcomes for rule in outcome.figures))
    for rule in rules:
        cells = [_cell(outcome, rule) for outcome in outcomes]
        table.add_row(rule, *cells, style="bold" if rule == OURS else None)
    table.add_row("no rule misses less", *(f"{outcome.least_missed_percent:.1f}" for outcome in outcomes), style="dim")
    return table


def _cell(outcome: Outcome, rule: str) -> str:
    figures = outcome.figures.get(rule)
    if figures is None:
        return ""
    # Seconds of preparing would hide what a fast model's line and device take.
    p99 = f"{figures.line_and_device_p99_s * 1000:.0f}" if _is_fast(outcome) else f"{figures.p99_s:.1f}"
    return f"{p99}\n{figures.missed_percent:.1f}"


def _is_fast(outcome: Outcome) -> bool:
    return outcome.scenario.cost.single_s < 1


def bars_table(verdicts: Sequence[Verdict]) -> Table:
    """What must be shown, and what was."""
    table = Table(title="Must show", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("Promise", "Bar", "Reached", ""):
        table.add_column(heading, justify="left" if heading in ("Promise", "") else "right")
    for verdict in verdicts:
        sign = "at least" if verdict.bar.is_floor else "at most"
        says = "kept" if verdict.is_kept else "[red]falls short[/red]"
        table.add_row(verdict.bar.promise, f"{sign} {verdict.bar.limit:g}", f"{verdict.reached:.2f}", says)
    return table


def as_json(outcomes: Sequence[Outcome], verdicts: Sequence[Verdict], seeds: int) -> Mapping[str, object]:
    """Every figure, for a file that a later run is compared with."""
    return {
        "seeds": seeds,
        "scenarios": {
            outcome.scenario.name: {
                "title": outcome.scenario.title,
                "least_missed_percent": outcome.least_missed_percent,
                "rules": {rule: asdict(figures) for rule, figures in outcome.figures.items()},
            }
            for outcome in outcomes
        },
        "bars": [
            {"promise": each.bar.promise, "limit": each.bar.limit, "reached": each.reached, "is_kept": each.is_kept} for each in verdicts
        ],
    }


def _write(path: Path, words: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(words)
