"""What the ledger's state machine notices: `python -m tests.integration.persistence.mutations`.

It breaks the ledger in one place after the other. Each mutation replaces one string in a copy of the tree; then the ordinary walks
of `test_ledger_machine.py` run on the copy. A mutation that they do not notice is a rule that no test of theirs holds, unless it is
said why it changes nothing.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.integration.persistence.mutations_list import LEDGER, MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[3]
COPIED = ("schemas", "pipeline", "workers", "migrations", "tests", "pyproject.toml")
MACHINE = "tests/integration/persistence/test_ledger_machine.py"
LIMIT_S = 900.0
WALKS_DISAGREE = 1
"""pytest's status where a test failed; every other one but 0 is no verdict."""


class NoVerdict(Exception):
    """The walks did not run to an end, or the place to break is not there once."""


def apply(mutation: Mutation, root: Path) -> None:
    """Break one place of a tree.

    Raises
    ------
    NoVerdict
        The string is gone, or stands there more than once: the list must follow the code.
    """
    path = root / LEDGER / mutation.module
    source = path.read_text(encoding="utf-8")
    count = source.count(mutation.old)
    if count != 1:
        raise NoVerdict(f"{mutation.what}: the string stands {count} times in {mutation.module}")
    path.write_text(source.replace(mutation.old, mutation.new), encoding="utf-8")


def is_noticed(mutation: Mutation | None, *, examples: int | None) -> bool:
    """Run the walks on a broken copy (None: on an unbroken one); True where they disagree.

    Raises
    ------
    NoVerdict
        pytest ended otherwise than by passing or failing.
    """
    with tempfile.TemporaryDirectory(prefix="secondread-mutation-") as folder:
        root = Path(folder)
        _copy(root)
        if mutation is not None:
            apply(mutation, root)
        environment = os.environ | {"PYTHONPATH": str(root), "SECONDREAD_TEST_SHRINK": "no"}
        if examples:
            environment["SECONDREAD_TEST_EXAMPLES"] = str(examples)
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", MACHINE]
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    is_verdict = done.returncode in (0, WALKS_DISAGREE) and "Timeout" not in done.stdout and " error" not in done.stdout[-200:]
    if not is_verdict:
        raise NoVerdict(f"{mutation.what if mutation else 'unbroken'}: pytest ended with {done.returncode}\n{done.stdout[-2000:]}")
    return done.returncode == WALKS_DISAGREE


def _copy(root: Path) -> None:
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, root / name)


def table(verdicts: Sequence[tuple[Mutation, bool]]) -> str:
    """The verdicts as Markdown."""
    rows = [
        f"| `{mutation.module}` | {mutation.what} | {'caught' if noticed else '**survived**'}{_why(mutation)} |"
        for mutation, noticed in verdicts
    ]
    return "\n".join(["| module | what is broken | |", "|---|---|---|", *rows])


def _why(mutation: Mutation) -> str:
    return f": {mutation.changes_nothing_because}" if mutation.changes_nothing_because else ""


def main() -> int:
    """Judge all mutations, or those that are named; 1 where one survives that should not."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.persistence.mutations", description=__doc__)
    parser.add_argument("--only", default="", help="mutations whose name contains this")
    parser.add_argument("--jobs", type=int, default=1, help="copies judged side by side")
    parser.add_argument("--examples", type=int, help="so many new walks each, instead of the ordinary ones")
    asked = parser.parse_args()
    chosen = [mutation for mutation in MUTATIONS if asked.only in mutation.what]
    if is_noticed(None, examples=asked.examples):
        print("The walks fail on the unbroken tree: nothing can be said.", file=sys.stderr)
        return 2
    verdicts = []
    with ThreadPoolExecutor(asked.jobs) as pool:
        for mutation, noticed in zip(chosen, pool.map(partial(is_noticed, examples=asked.examples), chosen), strict=True):
            print(f"{'caught  ' if noticed else 'survived'}  {mutation.what}", file=sys.stderr, flush=True)
            verdicts.append((mutation, noticed))
    print(table(verdicts))
    return int(any(not noticed and not mutation.changes_nothing_because for mutation, noticed in verdicts))


if __name__ == "__main__":
    sys.exit(main())
