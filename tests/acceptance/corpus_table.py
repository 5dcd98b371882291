"""`make corpus`: every real and every broken DICOM file of the corpus through the API, and one table of how each ended.

Writes build/corpus.json; ends with 1 where a file did not end as its row in the corpus asks, took too long, or left the
intake worker dead or larger.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pipeline.dicom.errors import REFUSALS
from tests.acceptance.running import Deployment, Json, running_deployment
from tests.conftest import DESIGN_DATA

FOLDERS = ("single/", "broken/")
MOST_MS = 2_000
MOST_GROWTH_MIB = 50.0
MIB = 1024 * 1024
REPORT = Path(__file__).resolve().parents[2] / "build" / "corpus.json"
READ = "read"
"""The instance was decoded: there is a result, be it that no model is made for it."""
NO_MODEL = "no-model"
"""Decoded, and answered with `not_applicable`."""


@dataclass(frozen=True, slots=True)
class Row:
    """How one file ended."""

    path: str
    allowed: tuple[str, ...]
    """Codes of ours, `read` and `no-model`: what the corpus asks for."""
    outcome: str
    said: str
    """The summary of the result, or the title of the failure."""
    ms: int
    """From acceptance to the end, by the ledger's clock."""
    stages: dict[str, int]
    """Milliseconds in each stage, and `wait` for the rest."""

    @property
    def shortcoming(self) -> str | None:
        """What is wrong with it, in words."""
        if self.outcome not in self.allowed:
            return f"ended as {self.outcome}, not as {' or '.join(self.allowed)}"
        return f"took {self.ms} ms" if self.ms > MOST_MS else None


@dataclass(frozen=True, slots=True)
class CorpusRun:
    """The whole corpus, and what it did to the intake worker."""

    rows: tuple[Row, ...]
    worker_survived: bool
    growth_mib: float

    def shortcomings(self) -> Iterator[str]:
        """Every reason not to be content."""
        yield from (f"{row.path} {row.shortcoming}" for row in self.rows if row.shortcoming)
        if not self.worker_survived:
            yield "the intake worker did not survive"
        if self.growth_mib > MOST_GROWTH_MIB:
            yield f"the intake worker grew by {self.growth_mib:.0f} MiB"


def allowed_outcomes(expectation: Json) -> tuple[str, ...]:
    """What a row's words allow, in our spelling."""
    words = {word.replace("_", "-") for word in re.findall(r"[a-z_]+", expectation["expect"])}
    codes = sorted(words & REFUSALS.keys())
    if not re.search(r"\bdecodes\b|\baccept\b", expectation["expect"]):
        return tuple(codes)
    # The shipped model is made for ultrasound; whatever else can be decoded must be answered with "no model".
    is_ultrasound = (expectation["meta"] or {}).get("Modality") == "US"
    return (*codes, READ, NO_MODEL) if is_ultrasound else (*codes, NO_MODEL)


def run_corpus(deployment: Deployment, corpus: Path) -> CorpusRun:
    """Submit file after file, and compare the worker before and after."""
    expectations = json.loads((corpus / "expectations.json").read_text(encoding="utf-8"))
    wanted = [row for row in expectations if row["path"].startswith(FOLDERS)]
    # What the first image loads for good is not growth.
    submit(deployment, corpus, wanted[0])
    before = deployment.worker("intake")
    before_bytes = before.memory_info().rss
    rows = tuple(submit(deployment, corpus, row) for row in wanted)
    after = deployment.worker("intake")
    return CorpusRun(rows, worker_survived=after == before, growth_mib=(after.memory_info().rss - before_bytes) / MIB)


def submit(deployment: Deployment, corpus: Path, expectation: Json) -> Row:
    """Send one file and wait for its end."""
    case = deployment.door.answered((corpus / expectation["path"]).read_bytes())
    outcome, said = _outcome_of(case)
    ms = round((_moment(case["ended_at"]) - _moment(case["accepted_at"])).total_seconds() * 1000)
    stages = _stage_times(deployment.door.timeline(case["case_id"]))
    return Row(expectation["path"], allowed_outcomes(expectation), outcome, said, ms, stages | {"wait": ms - sum(stages.values())})


def _outcome_of(case: Json) -> tuple[str, str]:
    if case["status"] == "completed":
        result = case["result"]
        return (NO_MODEL if result["outcome"] == "not_applicable" else READ), result["summary"]
    failure = case["failure"] or {"code": case["status"], "title": ""}
    return failure["code"], failure["title"]


def _stage_times(timeline: Json) -> dict[str, int]:
    return {stage["stage"]: stage["duration_ms"] for stage in timeline["stages"] if stage["duration_ms"]}


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def print_table(console: Console, rows: Iterable[Row]) -> None:
    """One line a file."""
    table = Table("file", "ended as", "said", "ms", "slowest", title="Every file of the corpus through the API", title_justify="left")
    for row in rows:
        slowest = max(row.stages, key=lambda stage: row.stages[stage])
        style = "bold red" if row.shortcoming else None
        table.add_row(row.path, row.outcome, row.said, str(row.ms), f"{slowest} {row.stages[slowest]}", style=style)
    console.print(table)


def write_report(run: CorpusRun) -> None:
    """Leave the figures for other programs."""
    found: dict[str, Any] = asdict(run) | {"shortcomings": list(run.shortcomings())}
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """Run the command; an argument names another folder with the corpus."""
    corpus = Path(sys.argv[1]) if len(sys.argv) > 1 else DESIGN_DATA
    console = Console(width=None if sys.stdout.isatty() else 180)
    if not corpus.is_dir():
        console.print(f"There is no corpus in {corpus}. Name its folder as the argument.")
        return 2
    with running_deployment() as deployment:
        run = run_corpus(deployment, corpus)
    print_table(console, run.rows)
    write_report(run)
    slowest = max(run.rows, key=lambda row: row.ms)
    console.print(f"{len(run.rows)} files; slowest {slowest.ms} ms ({slowest.path}); intake grew by {run.growth_mib:.1f} MiB. {REPORT}")
    for shortcoming in run.shortcomings():
        console.print(shortcoming, style="bold red")
    return 1 if any(run.shortcomings()) else 0


if __name__ == "__main__":
    sys.exit(main())
