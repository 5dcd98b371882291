"""Rows of the ledger as the door shows them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.engine import Row

from pipeline.flow import STAGES
from schemas.api import CaseEventView, CaseView, DeliveryView, FailureView, StageTimes
from schemas.identifiers import public_id


def case_view(row: Row[Any]) -> CaseView:
    """One case, without its result."""
    case_id = public_id("case", row.id)
    here = f"/v1/cases/{case_id}"
    links = {"self": here, "timeline": f"{here}/timeline", "events": f"{here}/events"}
    if row.result_version:
        links |= {"result": f"{here}/result", "overlay": f"{here}/overlay.png"}
    return CaseView(
        case_id=case_id,
        status=row.state,
        lane=row.lane,
        client_reference=row.client_reference,
        accepted_at=row.accepted_at,
        deadline_at=row.deadline_at,
        changed_at=row.changed_at,
        ended_at=row.ended_at,
        version=row.version,
        result_version=row.result_version,
        is_preliminary=row.is_preliminary,
        failure=FailureView.model_validate(row.failure) if row.failure else None,
        links=links,
    )


def stage_times(row: Row[Any], delivered_at: datetime | None) -> tuple[StageTimes, ...]:
    """The seven stages with their times; receive ends with the acceptance, deliver with the first delivered callback."""
    recorded: dict[str, dict[str, Any]] = dict(row.timeline)
    recorded["receive"] = {"entered_at": row.accepted_at.isoformat(), "left_at": row.accepted_at.isoformat()}
    if delivered_at is not None and row.ended_at is not None:
        recorded["deliver"] = {"entered_at": row.ended_at.isoformat(), "left_at": delivered_at.isoformat()}
    shown: list[StageTimes] = []
    before: datetime | None = None
    for stage in STAGES:
        times = recorded.get(stage.name)
        if times is None:
            shown.append(StageTimes(stage=stage.name))
            continue
        entered_at, left_at = datetime.fromisoformat(times["entered_at"]), datetime.fromisoformat(times["left_at"])
        wait_ms = round((entered_at - before).total_seconds() * 1000) if before else None
        duration_ms = round((left_at - entered_at).total_seconds() * 1000)
        shown.append(StageTimes(stage=stage.name, entered_at=entered_at, left_at=left_at, wait_ms=wait_ms, duration_ms=duration_ms))
        before = left_at
    return tuple(shown)


def event_view(row: Row[Any]) -> CaseEventView:
    """One state change."""
    return CaseEventView(
        version=row.version, status=row.entered_state, previous=row.left_state, attempt=row.attempt, code=row.code, at=row.at
    )


def delivery_views(rows: Sequence[Row[Any]]) -> tuple[DeliveryView, ...]:
    """The callbacks of a case."""
    return tuple(
        DeliveryView(
            event_id=public_id("evt", row.id),
            type=row.event_type,
            state=row.state,
            attempts=row.attempt,
            outcome=row.outcome,
            status_code=row.status_code,
            next_attempt_at=row.due_at if row.state == "pending" else None,
        )
        for row in rows
    )


def parse_cursor(text: str) -> UUID | None:
    """The id that a cursor stands for; None where it is none of ours."""
    try:
        return UUID(hex=text)
    except ValueError:
        return None
