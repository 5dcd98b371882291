"""Simulate many seeds, or replay one: `python -m tests.simulation --seeds 10000`, `python -m tests.simulation --seed 48`."""

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable

from tests.simulation.run import Outcome, simulate

TOLD = 20
"""Failing seeds that are told in full; the rest are only counted."""


def replay_line(seed: int) -> str:
    """What shows a seed again."""
    return f"python -m tests.simulation --seed {seed}"


def told(outcome: Outcome) -> str:
    """A failing seed, its violations, and how to see it again."""
    return "\n  ".join([f"seed {outcome.seed} fails; replay it with `{replay_line(outcome.seed)}`", *outcome.troubles[:5]])


def failing(seeds: Iterable[int], *, jobs: int = 1) -> list[Outcome]:
    """Simulate seeds, and return those that violate an invariant."""
    if jobs == 1:
        return [outcome for outcome in map(simulate, seeds) if outcome.troubles]
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        return [outcome for outcome in pool.imap(simulate, seeds, chunksize=25) if outcome.troubles]


def main() -> int:
    """Print what was found; 1 where a seed fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000, help="how many, from --first on")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--seed", type=int, help="replay this one and print its trace")
    asked = parser.parse_args()
    if asked.seed is not None:
        outcome = simulate(asked.seed)
        print(outcome.weather, *outcome.trace, *outcome.troubles, sep="\n")
        return int(bool(outcome.troubles))
    begun = time.monotonic()
    found = failing(range(asked.first, asked.first + asked.seeds), jobs=asked.jobs)
    for outcome in found[:TOLD]:
        print(told(outcome))
    print(f"{asked.seeds} seeds from {asked.first} on, {len(found)} fail, {time.monotonic() - begun:.0f} s")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
