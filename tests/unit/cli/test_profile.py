"""`secondread profile` from its arguments to its files, with a model of a few hundred weights."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from pipeline.inference.seeded import write_seeded_model
from schemas.performance_card import PerformanceCard

Command = Callable[..., Result]


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder with one small model, seeded-unet:1.32."""
    write_seeded_model(tmp_path / "models" / "small", seed=1, side_px=32, widths=(4, 4, 4, 4))
    return tmp_path / "models"


def test_a_profile_is_shown_written_drawn_and_kept(secondread: Command, models: Path, tmp_path: Path) -> None:
    wishes = ("--batches", "1,2,4", "--seconds", "0.01", "--json", str(tmp_path / "card.json"), "--plot", str(tmp_path / "card.svg"))
    shown = secondread("profile", "seeded-unet", *wishes, SECONDREAD_MODELS_DIR=str(models))

    assert shown.exit_code == 0, shown.output
    assert "seeded-unet:1.32 on cpu" in shown.stdout
    assert "as foretold without data" in shown.stdout
    card = PerformanceCard.model_validate_json((tmp_path / "card.json").read_bytes())
    assert [batch.images for batch in card.batches] == [1, 2, 4]
    assert len(ElementTree.parse(tmp_path / "card.svg").getroot()) > 10
    (kept,) = (tmp_path / "state" / "performance").iterdir()
    assert PerformanceCard.model_validate_json(kept.read_bytes()) == card


def test_a_wrong_name_is_answered_with_its_code_and_what_is_served(secondread: Command, models: Path) -> None:
    shown = secondread("profile", "nosuch:1", SECONDREAD_MODELS_DIR=str(models))

    assert shown.exit_code == 1
    assert "unknown-model: no model is called nosuch:1; served here: seeded-unet:1.32." in shown.output


def test_a_device_that_is_not_there_is_refused_with_what_is(secondread: Command, models: Path) -> None:
    shown = secondread("profile", "seeded-unet", "--device", "cuda:77", SECONDREAD_MODELS_DIR=str(models))

    assert shown.exit_code == 1
    assert "device-absent: cuda:77 is not there: torch " in shown.output
    assert "sees cpu (" in shown.output


@pytest.mark.parametrize("batches", ["", "1,two", "0,1", "-4"])
def test_batch_sizes_are_whole_numbers(secondread: Command, models: Path, batches: str) -> None:
    shown = secondread("profile", "seeded-unet", "--batches", batches, SECONDREAD_MODELS_DIR=str(models))

    assert shown.exit_code == 2
    assert "whole numbers" in shown.output


def test_one_device_is_profiled_at_a_time(secondread: Command, models: Path) -> None:
    assert secondread("profile", "seeded-unet", "--device", "cpu,cpu", SECONDREAD_MODELS_DIR=str(models)).exit_code == 2
