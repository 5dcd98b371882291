from pathlib import Path
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from pipeline.cases.serving import ServingPlan
from pipeline.inference.seeded import write_card
from pipeline.inference.shelf import CardShelf, cards_for
from schemas.model_card import ModelCard

CASE = UUID(int=5)


def beside(small: tuple[Path, ModelCard], version: str, name: str = "seeded-unet") -> str:
    """Another version's card in the same models folder."""
    folder, card = small
    other = folder.parent / f"{name}-{version}"
    other.mkdir()
    write_card(other, card.model_copy(update={"name": name, "version": version}))
    return f"{name}:{version}"


@pytest.fixture
def shelf(small: tuple[Path, ModelCard]) -> CardShelf:
    return CardShelf(small[0].parent, look_every_s=0.0)


def test_a_version_that_came_later_is_found_when_it_is_asked_for(small: tuple[Path, ModelCard], shelf: CardShelf) -> None:
    later = beside(small, "9")
    assert list(shelf) == [small[1].reference]
    assert shelf[later][0].version == "9"
    assert set(shelf) == {small[1].reference, later}


def test_the_folder_is_not_read_for_every_question(small: tuple[Path, ModelCard]) -> None:
    shelf = CardShelf(small[0].parent, look_every_s=3600.0)
    assert "seeded-unet:9" not in shelf
    beside(small, "9")
    assert "seeded-unet:9" not in shelf


def test_a_card_stays_when_its_folder_is_gone(small: tuple[Path, ModelCard], shelf: CardShelf) -> None:
    small[0].rename(small[0].parent / ".gone")
    shelf.look()
    assert shelf[small[1].reference][0] == small[1]


def test_who_asks_for_what_nobody_has_is_told_and_it_is_logged(shelf: CardShelf) -> None:
    with capture_logs() as logs, pytest.raises(KeyError):
        shelf["seeded-unet:8"]
    assert [(entry["event"], entry["model"]) for entry in logs] == [("model_card_missing", "seeded-unet:8")]


def test_without_a_plan_all_cards_may_be_chosen_from(shelf: CardShelf) -> None:
    assert cards_for(shelf, {}, CASE) is shelf


def test_a_plan_leaves_the_one_version_that_answers(small: tuple[Path, ModelCard], shelf: CardShelf) -> None:
    newer = beside(small, "9")
    name, version = small[1].name, small[1].version
    assert list(cards_for(shelf, {name: ServingPlan(name, 1, "default", version)}, CASE)) == [small[1].reference]
    assert list(cards_for(shelf, {name: ServingPlan(name, 2, "switch", "9")}, CASE)) == [newer]


def test_a_model_that_nobody_let_answer_is_not_chosen(small: tuple[Path, ModelCard], shelf: CardShelf) -> None:
    beside(small, "1", name="a-stranger")
    shelf.look()
    name = small[1].name
    plans = {
        name: ServingPlan(name, 1, "default", small[1].version),
        "a-stranger": ServingPlan("a-stranger", 1, "load", None, candidate="1"),
    }
    assert list(cards_for(shelf, plans, CASE)) == [small[1].reference]


@pytest.mark.parametrize(("canary", "serving"), [("8", "9"), (None, "8")])
def test_a_version_whose_folder_is_missing_is_stood_in_for(
    small: tuple[Path, ModelCard], shelf: CardShelf, canary: str | None, serving: str
) -> None:
    newest = beside(small, "9")
    shelf.look()
    plan = ServingPlan(small[1].name, 2, "switch", serving, canary=canary, share=1.0 if canary else 0.0)
    assert list(cards_for(shelf, {plan.name: plan}, CASE)) == [newest]
