"""Whether the demonstration went as it must, study by study."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.table import Table
from rich.text import Text

from schemas.api import StageTimes
from schemas.report import Report
from workers.cli.demonstration.receiver import SIGNATURE_OK
from workers.cli.demonstration.study import DemoStudy
from workers.cli.view.findings import largest_finding, outcome_text, size_text
from workers.cli.view.timeline import stage_times_text, total_ms

OVERLAP_AT_LEAST = 0.5
"""A lesion counts as found where outline and truth share that much (Dice)."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One study, its answer, and what is known of both."""

    study: DemoStudy
    report: Report | None
    refusal: str = ""
    overlap: float | None = None
    callback: str = "did not come"
    stages: Sequence[StageTimes] = ()
    folder: Path | None = None

    @property
    def faults(self) -> list[str]:
        """What is not as it must be."""
        if self.report is None:
            return [self.refusal or "no answer"]
        found = []
        if self.report.outcome != self.study.expected:
            found.append(f"{self.study.expected.replace('_', ' ')} was expected")
        if self.study.overlap is not None and (self.overlap or 0.0) < OVERLAP_AT_LEAST:
            found.append("the outline misses the lesion")
        if self.callback != SIGNATURE_OK:
            found.append(f"callback: {self.callback}")
        return found


def answers_table(judged: Sequence[Judged]) -> Table:
    """Answers beside the truth."""
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for name in ("Study", "Answer", "Size", "Prob.", "Overlap", "Callback"):
        table.add_column(name, no_wrap=True)
    table.add_column("As it must be", overflow="fold")
    for each in judged:
        found = largest_finding(each.report) if each.report else None
        size, probability = (size_text(found[1]), f"{found[1].probability:.2f}") if found else ("", "")
        overlap = "" if each.overlap is None else f"{each.overlap:.2f}"
        verdict = Text("; ".join(each.faults), style="red") if each.faults else Text("yes", style="green")
        answer = outcome_text(each.report.outcome if each.report else "refused")
        table.add_row(each.study.name, answer, size, probability, overlap, each.callback, verdict)
    return table


def times_table(judged: Sequence[Judged]) -> Table:
    """Wait and work of each stage, in milliseconds."""
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False, title="Milliseconds waited + worked", title_justify="left")
    table.add_column("Study")
    timed = [each for each in judged if each.stages]
    for stage in timed[0].stages if timed else ():
        table.add_column(stage.stage, justify="right")
    table.add_column("all", justify="right")
    for each in timed:
        table.add_row(each.study.name, *(stage_times_text(stage) for stage in each.stages), str(total_ms(each.stages)))
    return table
