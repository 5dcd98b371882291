"""`secondread simulate`: the tables, the files and the exit code."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipeline.batching.simulation.bars import Bar
from pipeline.batching.simulation.scenarios import OURS, SCENARIOS, Scenario
from pipeline.batching.simulation.workload import steady
from workers.cli import main, simulate

RUNNER = CliRunner()


@pytest.fixture
def lanes(monkeypatch: pytest.MonkeyPatch) -> Scenario:
    """The scenario of the lanes, and no more of it than a moment; played in this process."""
    (full,) = (scenario for scenario in SCENARIOS if scenario.name == "lanes")
    short = replace(full, arrivals=steady(7, 80))
    monkeypatch.setitem(simulate.NAMES, "lanes", short)
    monkeypatch.setattr(simulate, "ProcessPoolExecutor", ThreadPoolExecutor)
    return short


def test_the_figures_are_shown_and_written(lanes: Scenario, tmp_path: Path) -> None:
    figures, plot = tmp_path / "build" / "figures.json", tmp_path / "build" / "plot.svg"

    ran = RUNNER.invoke(main.app, ["simulate", "--scenario", "lanes", "--seeds", "1", "--json", str(figures), "--plot", str(plot)])

    assert ran.exit_code == 0, ran.output
    written = json.loads(figures.read_text())
    ours = written["scenarios"]["lanes"]["rules"][OURS]
    assert f"{ours['p99_s']:.1f}" in ran.output
    assert "strict priority" in ran.output
    assert [bar["is_kept"] for bar in written["bars"]] == [True, True]
    assert plot.read_text().startswith("<svg")


def test_a_bar_that_is_not_reached_fails_the_command(lanes: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    bar = Bar("lanes", "nobody waits at all", lambda figures: figures[OURS].p50_s, 0.0)
    monkeypatch.setattr("pipeline.batching.simulation.bars.BARS", [bar])

    ran = RUNNER.invoke(main.app, ["simulate", "--scenario", "lanes", "--seeds", "1"])

    assert ran.exit_code == simulate.FALLS_SHORT
    assert "falls short" in ran.output


def test_an_unknown_scenario_is_a_usage_error() -> None:
    ran = RUNNER.invoke(main.app, ["simulate", "--scenario", "weekend"])

    assert ran.exit_code == simulate.USAGE


def test_the_pages_say_what_the_scenarios_are() -> None:
    page = (Path(__file__).parents[3] / "docs" / "batching.md").read_text()

    assert all(f"`{scenario.name}`" in page for scenario in SCENARIOS)
