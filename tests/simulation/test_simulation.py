"""A12: the product's policies in virtual time, under whatever weather a seed brings.

The ordinary run simulates 200 seeds; `SECONDREAD_TEST_SEEDS=10000` so many. A failing seed is printed with the line that replays it.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.cases.compensation import Share
from tests.ledger_model.rows import Rows
from tests.simulation.__main__ import failing, replay_line, told
from tests.simulation.run import simulate
from tests.simulation.statements import MemoryLedger

SEEDS = int(os.environ.get("SECONDREAD_TEST_SEEDS") or 200)
ROOT = Path(__file__).resolve().parents[2]
SEEDS_TO_FIND_A_MISTAKE = 150
"""A worker that stands still with a batch in hand, and comes back to a case that another has, is in one seed of a hundred."""
Plant = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.timeout(240 + SEEDS)
def test_whatever_the_weather_every_promise_is_kept() -> None:
    found = failing(range(SEEDS), jobs=min(2, os.cpu_count() or 1))

    assert not found, "\n".join(map(told, found))


def test_the_seeds_meet_what_they_are_to_test() -> None:
    seen = {line.split(": ", 1)[1].split(" ")[0] for seed in range(40) for line in simulate(seed).trace}

    assert {"dies", "loses", "stands", "jumps", "are", "claims", "fires", "writes"} <= seen


def test_a_seed_is_the_whole_story_in_another_process_too() -> None:
    seed = 17
    here = simulate(seed)

    # Another order of hashes is what most often makes two processes differ.
    lines = [replayed(seed, hashing=hashing) for hashing in ("1", "2")]

    assert lines[0] == lines[1] == [str(here.weather), *here.trace]
    assert simulate(seed) == here
    assert simulate(seed + 1).trace != here.trace


def replayed(seed: int, *, hashing: str) -> list[str]:
    command = [sys.executable, *replay_line(seed).split()[1:]]
    environment = os.environ | {"PYTHONHASHSEED": hashing}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=ROOT).stdout.splitlines()


def takes_living_claims(patch: pytest.MonkeyPatch) -> None:
    """No lease is asked for: whoever comes may have it."""
    patch.setattr(Rows, "is_lapsed", lambda _, case: case.lease_until is not None)


def forgets_the_fence(patch: pytest.MonkeyPatch) -> None:
    """A stale worker's write counts, as long as the case stands where it was."""
    patch.setattr(Rows, "stands", lambda self, case_id, _attempt, left: self.cases[case_id].state is left)


def sends_all_put_off_cases_at_once(patch: pytest.MonkeyPatch) -> None:
    """No share: whoever was put off goes, however many wait."""
    patch.setattr(Share, "release_count", lambda *_, **__: 50)


def keeps_late_cases_in_line(patch: pytest.MonkeyPatch) -> None:
    """Late cases are answered, and then left where they are."""
    patch.setattr("pipeline.persistence.ledger.guard.OwedCase.is_put_off", False)


def answers_nobody_in_time(patch: pytest.MonkeyPatch) -> None:
    """The guard comes after the deadline instead of before it."""
    owed = MemoryLedger.owed
    patch.setattr(MemoryLedger, "owed", lambda self, reserve_s, **rest: owed(self, reserve_s=-2.0, **rest))


def rings_without_a_budget(patch: pytest.MonkeyPatch) -> None:
    """What is lost is rung, however much it is."""
    patch.setattr("pipeline.persistence.ledger.sweep.RingBudget.next_round", lambda *_: 1_000)


def never_frees(patch: pytest.MonkeyPatch) -> None:
    """A dead worker's claim stays its own."""
    patch.setattr(MemoryLedger, "free_expired", lambda *_, **__: [])


@pytest.mark.parametrize(
    "plant",
    [
        takes_living_claims,
        forgets_the_fence,
        sends_all_put_off_cases_at_once,
        keeps_late_cases_in_line,
        answers_nobody_in_time,
        rings_without_a_budget,
        never_frees,
    ],
)
def test_a_planted_mistake_makes_seeds_fail(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)

    assert any(simulate(seed).troubles for seed in range(SEEDS_TO_FIND_A_MISTAKE))
