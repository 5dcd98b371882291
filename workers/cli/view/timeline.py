"""Where a case's time went, as bars on one scale."""

from collections.abc import Sequence
from datetime import datetime

from rich import box
from rich.table import Table
from rich.text import Text

from schemas.api import DeliveryView, StageTimes, TimelineView

BAR_COLUMNS = 50
EIGHTHS = " ▏▎▍▌▋▊▉"


def stages_table(timeline: TimelineView) -> Table:
    """The seven stages: wait and work in milliseconds, and a bar from the acceptance to the end."""
    reached = [stage for stage in timeline.stages if stage.entered_at and stage.left_at]
    table = Table(
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
        title=f"Where the time went: {total_ms(timeline.stages)} ms",
        title_justify="left",
    )
    table.add_column("Stage")
    table.add_column("Wait ms", justify="right")
    table.add_column("Work ms", justify="right")
    table.add_column("From acceptance to the end", min_width=BAR_COLUMNS)
    for stage in timeline.stages:
        table.add_row(stage.stage, _number(stage.wait_ms), _number(stage.duration_ms), _bar(stage, reached))
    return table


def total_ms(stages: Sequence[StageTimes]) -> int:
    """Milliseconds from the first entry to the last leaving."""
    moments = [moment for stage in stages for moment in (stage.entered_at, stage.left_at) if moment]
    return _ms(max(moments), min(moments)) if moments else 0


def stage_times_text(stage: StageTimes) -> str:
    """Wait + work of a stage in milliseconds, such as `12+3`; `-` where it was not reached."""
    return "-" if stage.duration_ms is None else f"{stage.wait_ms or 0}+{stage.duration_ms}"


def deliveries_table(deliveries: Sequence[DeliveryView]) -> Table:
    """The callbacks of a case."""
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False, title="Callbacks", title_justify="left")
    for name in ("Event", "State", "Attempts", "Came of it", "Status", "Next attempt"):
        table.add_column(name)
    for each in deliveries:
        status = str(each.status_code) if each.status_code else ""
        next_at = moment_text(each.next_attempt_at) if each.next_attempt_at else ""
        table.add_row(each.type, each.state, str(each.attempts), each.outcome or "", status, next_at)
    return table


def moment_text(moment: datetime) -> str:
    """A moment in the reader's own time zone."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _number(value_ms: int | None) -> str:
    return "" if value_ms is None else str(value_ms)


def _bar(stage: StageTimes, reached: Sequence[StageTimes]) -> Text:
    """A light bar for the wait and a full one for the work, both where they were in time."""
    if stage.entered_at is None or stage.left_at is None:
        return Text("not reached", style="dim")
    begun_at = min(other.entered_at for other in reached if other.entered_at)
    length_ms = max(1, total_ms(reached))
    scale = BAR_COLUMNS / length_ms
    entered = _ms(stage.entered_at, begun_at) * scale
    waited = max(0.0, entered - (stage.wait_ms or 0) * scale)
    left = _ms(stage.left_at, begun_at) * scale
    text = Text(" " * int(waited))
    text.append("·" * (int(entered) - int(waited)), style="dim")
    text.append(_block(left - int(entered)), style="green")
    return text


def _block(columns: float) -> str:
    """A bar as fine as an eighth of a column; never quite nothing."""
    eighths = max(1, round(columns * 8))
    return "█" * (eighths // 8) + (EIGHTHS[eighths % 8] if eighths % 8 else "")


def _ms(later: datetime, earlier: datetime) -> int:
    return round((later - earlier).total_seconds() * 1000)
