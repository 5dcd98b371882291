"""The product's rule in virtual time: a few minutes of each scenario, and what must hold of every firing."""

from collections.abc import Mapping

import pytest

from pipeline.batching.simulation.bars import judge
from pipeline.batching.simulation.chart import chart
from pipeline.batching.simulation.cost import LIMIT, Cost, Spell
from pipeline.batching.simulation.house import House
from pipeline.batching.simulation.measures import Figures, measure
from pipeline.batching.simulation.rules.ours import SecondRead
from pipeline.batching.simulation.rules.windows import Delay
from pipeline.batching.simulation.scenarios import OURS, SCENARIOS, Outcome, Scenario, bound, play
from pipeline.batching.simulation.workload import Image, Mix, images, steady

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


def short(name: str, count: int) -> Scenario:
    """The first images of a scenario with a steady stream."""
    rates = {"light": 2.0, "busy": 4.5, "overload": 8.0, "lanes": 7.0, "shapes": 5.0, "fast": 3.0}
    full = BY_NAME[name]
    return Scenario(name, full.title, steady(rates[name], count), full.cost, full.mix, full.rules)


def ours(name: str, count: int) -> Figures:
    return play(short(name, count), SecondRead, seed=1)


def test_a_busy_house_misses_nobody() -> None:
    figures = ours("busy", 500)

    assert figures.missed_percent == 0.0
    assert figures.p99_s < 20


def test_a_model_of_twenty_milliseconds_is_not_held_back() -> None:
    assert ours("fast", 400).line_and_device_p99_s < 0.040


def test_an_overloaded_house_answers_as_many_in_time_as_it_can_read() -> None:
    scenario = short("overload", 800)
    greedy = play(scenario, lambda: Delay(0.0), seed=1)
    figures = play(scenario, SecondRead, seed=1)

    assert figures.in_time_per_s > 5.9
    assert figures.in_time_per_s > 1.5 * greedy.in_time_per_s
    assert figures.missed_percent >= bound(scenario, seeds=1) - 3


def test_whoever_was_put_off_is_read_in_the_end() -> None:
    assert ours("overload", 500).compensated_percent == 100.0


def test_urgent_images_go_first_and_routine_ones_are_not_forgotten() -> None:
    figures = ours("lanes", 800)

    assert figures.urgent_p99_s < figures.routine_p99_s < 30.5
    assert figures.urgent_p50_s < 20


def test_images_of_two_shapes_share_no_batch() -> None:
    stream = images(steady(5, 300), Mix(small_share=0.7), seed=1)

    fates = House(stream, Cost(7.5), devices=4, seed=1).live(SecondRead())

    assert all(len({stream[number].scale for number in run.numbers}) == 1 for run in fates.runs)
    assert measure(stream, fates, devices=4).missed_percent == 0.0


def test_what_breaks_for_want_of_memory_runs_in_halves_and_the_device_remembers() -> None:
    cost = Cost(7.5, short_of_memory=Spell(0, 10_000, 9))
    stream = images(steady(4, 600), Mix(), seed=1)

    fates = House(stream, cost, devices=4, seed=1).live(SecondRead())

    broken = [len(run.numbers) for run in fates.runs if not run.has_room]
    assert len(fates.done_at) == 600
    # Each device learns it once; then it tries ten images now and then, after twenty batches without trouble.
    assert sum(size > 10 for size in broken) <= 4
    assert broken


@pytest.mark.parametrize("name", ["light", "busy", "overload", "lanes"])
def test_every_batch_keeps_the_rules_of_a_batch(name: str) -> None:
    scenario = short(name, 400)
    stream = images(scenario.arrivals, scenario.mix, 2)

    fates = House(stream, scenario.cost, devices=4, seed=2).live(SecondRead())

    began: dict[int, float] = {}
    for run in fates.runs:
        assert 1 <= len(run.numbers) <= LIMIT
        for number in run.numbers:
            # Nobody runs twice, nor before it came: a batch takes its members at the instant at which it fires.
            assert number not in began
            began[number] = run.began_at
            assert stream[number].arrives_at <= run.began_at
    assert set(began) == set(range(len(stream)))


def test_a_seed_is_the_whole_story() -> None:
    assert ours("busy", 200) == ours("busy", 200)


def test_one_image_alone_starts_at_once() -> None:
    fates = House([Image(5.0, 1.0)], Cost(7.5), devices=4, seed=0).live(SecondRead())

    assert fates.runs[0].began_at == 5.0


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    played = [short("light", 60), short("lanes", 60)]
    return [Outcome(one, {name: play(one, rule, seed=0) for name, rule in one.rules.items()}, 0.0) for one in played]


def test_every_rule_plays_a_scenario_to_its_end(outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        for name, figures in outcome.figures.items():
            assert figures.p50_s > 8, name
            assert 0 <= figures.missed_percent <= 100, name


def test_a_bar_is_missed_where_the_figures_say_so(outcomes: list[Outcome]) -> None:
    verdicts = {verdict.bar.promise: verdict for verdict in judge(outcomes)}

    assert set(verdicts) == {bar for bar in verdicts if "115 %" in bar}
    routine = verdicts["routine 99th percentile at 115 % (s)"]
    assert routine.is_kept == (routine.reached <= 30)
    assert routine.reached == figures_of(outcomes)["lanes"].routine_p99_s


def figures_of(outcomes: list[Outcome]) -> Mapping[str, Figures]:
    return {outcome.scenario.name: outcome.figures[OURS] for outcome in outcomes}


def test_the_chart_shows_every_rule_of_the_scenarios_that_all_play(outcomes: list[Outcome]) -> None:
    drawn = chart(outcomes)

    assert drawn.startswith("<svg")
    assert drawn.endswith("</svg>\n")
    assert all(name in drawn for name in outcomes[0].figures)
    assert "strict priority" not in drawn
