"""A whole profile of a small model: every figure is there and agrees with the others."""

import xml.etree.ElementTree as ElementTree
from datetime import datetime
from pathlib import Path

import pytest

from pipeline.inference.absence import DeviceAbsent
from pipeline.inference.failures import OutOfDeviceMemory
from pipeline.inference.profiling.choice import UnknownModel, find_model
from pipeline.inference.profiling.layers import BETWEEN
from pipeline.inference.profiling.plot import draw
from pipeline.inference.profiling.profile import Ask, profile
from pipeline.inference.runner import ModelRunner
from pipeline.inference.seeded import write_seeded_model
from pipeline.inference.transfer import UInt8Array
from schemas.model_card import ModelCard
from tests.unit.inference.profiling.made_up import MakeCard

QUICK = Ask(sizes=(4, 1, 2, 2), seconds=0.01)
SVG = "{http://www.w3.org/2000/svg}"


def test_a_profile_holds_every_figure(small: tuple[Path, ModelCard], noon: datetime) -> None:
    heard: list[str] = []
    card = profile(small[0], QUICK, at=noon, tell=heard.append)

    assert (card.model, card.bucket, card.device, card.threads) == (small[1].reference, 32, "cpu", 1)
    assert card.predicted_flops == card.counted_flops > 0
    assert [batch.images for batch in card.batches] == [1, 2, 4]
    assert all(batch.p10_s <= batch.median_s <= batch.p90_s and batch.run_count >= 5 for batch in card.batches)
    # torch alone takes more than this.
    assert all((batch.peak_memory_bytes or 0) > 50 * 1024 * 1024 for batch in card.batches)
    assert card.knee in (1, 2, 4)
    assert sum(layer.flops or 0 for layer in card.layers) == card.counted_flops
    assert BETWEEN in [layer.name for layer in card.layers]
    assert heard[-3:] == ["batches of 1", "batches of 2", "batches of 4"]
    assert any("without data" in doing for doing in heard[: heard.index("counting them in a real run")])


def test_batches_that_the_memory_does_not_hold_are_left_out_and_named(
    small: tuple[Path, ModelCard], noon: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ModelRunner.run

    def full_at_two(runner: ModelRunner, batch: UInt8Array) -> object:
        if len(batch) > 1:
            raise OutOfDeviceMemory
        return run(runner, batch)

    monkeypatch.setattr(ModelRunner, "run", full_at_two)
    card = profile(small[0], QUICK, at=noon)

    assert [batch.images for batch in card.batches] == [1]
    assert card.does_not_fit == 2


def test_a_device_that_is_not_there_is_refused_with_what_is(small: tuple[Path, ModelCard], noon: datetime) -> None:
    with pytest.raises(DeviceAbsent, match=r"cuda:77 is not there: torch .* sees cpu \(") as absent:
        profile(small[0], Ask(device="cuda:77"), at=noon)
    assert absent.value.code == "device-absent"


def test_the_plot_shows_every_batch_and_the_knee(make_card: MakeCard) -> None:
    card = make_card({1: 0.010, 2: 0.012, 4: 0.020, 16: 0.080}, device_name="A <very> fast & odd one")
    drawn = ElementTree.fromstring(draw(card))

    assert len(drawn.findall(f"{SVG}circle")) == 2 * 4
    texts = [text.text for text in drawn.iter(f"{SVG}text")]
    assert "knee: 4" in texts
    assert any("A <very> fast & odd one" in (text or "") for text in texts)
    # Longer batches stand higher: SVG counts y downwards.
    ys = [float(circle.attrib["cy"]) for circle in drawn.findall(f"{SVG}circle")][:4]
    assert ys == sorted(ys, reverse=True)


def test_a_single_batch_size_can_be_drawn(make_card: MakeCard) -> None:
    assert len(ElementTree.fromstring(draw(make_card({4: 0.020}))).findall(f"{SVG}circle")) == 2


def test_a_model_is_found_by_its_name_or_by_name_and_version(small: tuple[Path, ModelCard]) -> None:
    newer = write_seeded_model(small[0].parent / "newer", seed=12, side_px=32, widths=(4, 4, 4, 4))

    assert find_model(small[0].parent, small[1].reference) == small[0]
    assert find_model(small[0].parent, newer.name) == small[0].parent / "newer"


def test_a_wrong_name_is_answered_with_those_that_are_served(small: tuple[Path, ModelCard]) -> None:
    with pytest.raises(UnknownModel, match=f"no model is called nosuch; served here: {small[1].reference}$"):
        find_model(small[0].parent, "nosuch")


def test_a_folder_that_was_refused_says_why(small: tuple[Path, ModelCard]) -> None:
    (small[0].parent / "torn").mkdir()
    with pytest.raises(UnknownModel, match=r"the folder torn was refused: torn/card.toml: cannot be read"):
        find_model(small[0].parent, "torn")
