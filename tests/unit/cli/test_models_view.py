from pathlib import Path

import pytest
from rich.console import Console

from pipeline.cases.serving import ServingPlan
from pipeline.inference.card import BadModelFolder, Survey
from pipeline.persistence.ledger.models import ModelReport
from workers.cli.view.models import models_table, plan_text, state_text

LOADED = ModelReport("inference@a-1", "m", "1", "loaded", digest="abcdef0123456789", one_s=0.0175, most_s=0.2)
REFUSED = ModelReport("inference@a-1", "m", "2", "refused", 3, code="bad-output", reason="the model's answer is not finite")


@pytest.mark.parametrize(
    ("plan", "version", "reports", "said"),
    [
        (ServingPlan("m", 1, "default", "1"), "1", [LOADED], "serves"),
        (ServingPlan("m", 2, "canary", "3", canary="1", share=0.05), "1", [LOADED], "canary 5.00%"),
        (ServingPlan("m", 2, "shadow", "3", shadow="1"), "1", [LOADED], "shadow"),
        (ServingPlan("m", 2, "load", "3", candidate="1"), "1", [], "is being loaded"),
        (ServingPlan("m", 3, "refused", "1"), "2", [REFUSED], "refused: the model's answer is not finite (bad-output)"),
        (ServingPlan("m", 3, "switch", "2"), "2", [REFUSED], "serves; refused: the model's answer is not finite (bad-output)"),
        (ServingPlan("m", 3, "switch", "2"), "1", [LOADED], "loaded"),
        (ServingPlan("m", 3, "switch", "2"), "4", [], "in the folder"),
        (None, "1", [], "in the folder"),
    ],
)
def test_each_version_says_what_it_does_and_why_where_it_does_not(
    plan: ServingPlan | None, version: str, reports: list[ModelReport], said: str
) -> None:
    assert state_text(plan, version, reports, is_here=True) == said


def test_a_version_that_only_a_plan_knows_has_no_folder() -> None:
    assert state_text(ServingPlan("m", 1, "switch", "2"), "1", [], is_here=False) == "its folder is gone"


def test_the_table_shows_durations_digest_who_has_it_and_folders_without_a_card() -> None:
    console = Console(width=200, record=True, file=Path("/dev/null").open("w"))  # noqa: SIM115
    found = Survey(cards={}, refused={"broken": BadModelFolder("broken/card.toml: cannot be read")})
    console.print(models_table(found, {"m": ServingPlan("m", 1, "default", "1")}, [LOADED, REFUSED]))
    lines = console.export_text().splitlines()
    console.file.close()
    (serving,) = [line for line in lines if " serves " in line]
    for part in ("1 of 1", "17.5 ms", "200.0 ms", "abcdef012345"):
        assert part in serving
    assert any("broken" in line and "cannot be read" in line for line in lines)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (ServingPlan("m", 1, "switch", "2"), "m: 2 answers."),
        (ServingPlan("m", 1, "canary", "1", canary="2", share=0.05), "m: 2 answers 5.00% of the cases, 1 the others."),
        (ServingPlan("m", 1, "shadow", "1", shadow="2"), "m: 1 answers; 2 reads beside it and answers nobody."),
    ],
)
def test_a_plan_is_one_sentence(plan: ServingPlan, said: str) -> None:
    assert plan_text(plan) == said
