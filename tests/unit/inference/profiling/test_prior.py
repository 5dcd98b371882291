"""What an inference process makes of a performance card, and when it does not believe it."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from structlog.testing import capture_logs

from pipeline.inference.profiling.cards import keep
from pipeline.inference.profiling.prior import WarmUp, known_durations, warmed
from pipeline.inference.registry import ModelRegistry
from pipeline.inference.runner import WARM_UP_SIZES
from pipeline.inference.transfer import UInt8Array
from schemas.model_card import ModelCard
from tests.unit.inference.profiling.made_up import MakeCard

SECONDS = {1: 0.010, 2: 0.015, 4: 0.025, 8: 0.045, 16: 0.085}


class Timed:
    """A runner whose batches take what a rule says, and that counts them."""

    def __init__(self, card: ModelCard, *, factor: float) -> None:
        self.card, self.device = card, torch.device("cpu")
        self._factor = factor
        self.runs: Counter[int] = Counter()

    def run(self, batch: UInt8Array) -> None:
        self.runs[len(batch)] += 1

    def warm_up(self, sizes: Sequence[int] = WARM_UP_SIZES, *, clock: Callable[[], float] = time.perf_counter) -> dict[int, float]:
        self.runs.update([*sizes, *sizes])
        return {size: self._factor * SECONDS[size] for size in sizes}


def test_a_card_that_holds_is_believed_and_no_size_is_left_cold(small: tuple[Path, ModelCard]) -> None:
    runner = Timed(small[1], factor=1.3)

    assert warmed(runner, SECONDS) == SECONDS
    assert runner.runs == dict.fromkeys(WARM_UP_SIZES, 2)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_card_that_the_device_does_not_live_up_to_is_not_believed(small: tuple[Path, ModelCard], factor: float) -> None:
    runner = Timed(small[1], factor=factor)
    with capture_logs() as logs:
        found = warmed(runner, SECONDS)

    assert found == {size: factor * seconds for size, seconds in SECONDS.items()}
    assert [entry["event"] for entry in logs] == ["performance_card_not_believed"]


@pytest.mark.parametrize("known", [None, {1: 0.01, 8: 0.045}])
def test_without_a_card_that_reaches_from_one_to_sixteen_every_size_is_timed(
    small: tuple[Path, ModelCard], known: dict[int, float] | None
) -> None:
    runner = Timed(small[1], factor=1.0)

    assert warmed(runner, known) == SECONDS
    assert runner.runs == dict.fromkeys(WARM_UP_SIZES, 2)


def test_a_kept_card_is_found_again(small: tuple[Path, ModelCard], make_card: MakeCard, tmp_path: Path) -> None:
    runner = Timed(small[1], factor=1.0)
    assert known_durations(tmp_path / "cards", runner) is None
    keep(make_card(SECONDS), tmp_path / "cards")

    assert known_durations(tmp_path / "cards", runner) == SECONDS
    assert [entry.suffix for entry in (tmp_path / "cards").iterdir()] == [".json"]


@pytest.mark.parametrize(
    "different",
    [
        {"torch_version": "0.1"},
        {"device_name": "another"},
        {"threads": 99},
        {"bucket": 64},
        {"weights_sha256": "a" * 64},
        {"model": "other:1"},
    ],
    ids=lambda different: next(iter(different)),
)
def test_a_card_of_anything_else_says_nothing(
    small: tuple[Path, ModelCard], make_card: MakeCard, tmp_path: Path, different: dict[str, object]
) -> None:
    mine = keep(make_card(SECONDS), tmp_path)
    other = keep(make_card(SECONDS, **different), tmp_path / "other")
    # Even under the name of the right one.
    other.replace(mine)

    assert known_durations(tmp_path, Timed(small[1], factor=1.0)) is None


def test_a_card_that_cannot_be_read_is_said_and_passed_over(small: tuple[Path, ModelCard], make_card: MakeCard, tmp_path: Path) -> None:
    keep(make_card(SECONDS), tmp_path).write_text("{}")
    with capture_logs() as logs:
        assert known_durations(tmp_path, Timed(small[1], factor=1.0)) is None
    assert [entry["event"] for entry in logs] == ["performance_card_unreadable"]


def test_the_registry_hands_on_what_is_known(small: tuple[Path, ModelCard]) -> None:
    folder, card = small
    asked: list[str] = []

    def known(runner: object) -> dict[int, float]:
        asked.append(type(runner).__name__)
        return dict.fromkeys(WARM_UP_SIZES, 1000.0)

    registry = ModelRegistry(folder.parent, warm_up=WarmUp(known=known))
    with capture_logs() as logs:
        registry.load()

    assert asked == ["ModelRunner"]
    assert "performance_card_not_believed" in [entry["event"] for entry in logs]
    assert max(registry.durations_s(card.reference).values()) < 1000.0
