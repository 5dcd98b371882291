"""`/v1/cases`: submit, watch, read, cancel."""

import re
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.sse import EventSourceResponse, ServerSentEvent
from sqlalchemy.engine import Row
from uuid6 import uuid7

from pipeline.cases.states import TERMINAL, CaseState
from pipeline.deadline import utc_now
from pipeline.errors import StaleCompletion
from pipeline.persistence.ledger.admission import Accepted, ApiKey
from pipeline.persistence.ledger.cases import Reader as LedgerReader
from pipeline.persistence.ledger.cases import list_cases, read_answered_case, read_case, read_events, read_result
from pipeline.persistence.ledger.deliveries import deliveries_of, find_endpoint
from pipeline.stages.receive import Submission, receive
from schemas.api import CaseList, CaseView, LaneName, TimelineView
from schemas.identifiers import parse_public_id, public_id
from schemas.webhook import CaseStatus
from workers.endings import cancel
from workers.gateway.answers import Waiter
from workers.gateway.door import Door, at_the_door
from workers.gateway.keys import Reader, Writer
from workers.gateway.problems import Refused
from workers.gateway.submission import BODY_SCHEMA, ReadSubmission, read_submission
from workers.gateway.views import case_view, delivery_views, event_view, parse_cursor, stage_times

LONGEST_WAIT_S = 25.0
EVENTS_LOOK_S = 0.5
LOOK_ANYWAY_S = 5.0
"""A long poll looks for itself this often, should the bell be deaf."""
CANCEL_TRIES = 5
_KEY = re.compile(r"^[\x21-\x7e]{8,128}$")
_PREFER_WAIT = re.compile(r"(?:^|[,;\s])wait=(\d{1,4})(?:$|[,;\s])")

router = APIRouter(prefix="/v1/cases", tags=["cases"])
Place = Annotated[Door, Depends(at_the_door)]


async def known_case(case_id: str) -> UUID:
    """The id in the path; 404 where it is none of ours."""
    found = parse_public_id("case", case_id)
    if found is None:
        raise Refused("not-found")
    return found


CaseId = Annotated[UUID, Depends(known_case)]


async def asked_wait_s(
    prefer: Annotated[str | None, Header(description="`wait=n` waits up to n seconds (25 at most) for an answer.")] = None,
) -> float:
    """Seconds that `Prefer: wait=n` asks for."""
    found = _PREFER_WAIT.search(prefer or "")
    return min(float(found[1]), LONGEST_WAIT_S) if found else 0.0


WaitS = Annotated[float, Depends(asked_wait_s)]


@router.post("", status_code=202, response_model=CaseView, openapi_extra=BODY_SCHEMA, summary="Submit a case")
async def submit(
    request: Request, key: Writer, door: Place, wait_s: WaitS, idempotency_key: Annotated[str | None, Header(max_length=1000)] = None
) -> Response:
    """Take DICOM instances (or paths in a configured source) and answer 202 once the case cannot be lost.

    With `Prefer: wait=n` the answer comes at once as 200 if it is ready within n seconds.
    """
    if idempotency_key is None or not _KEY.match(idempotency_key):
        raise Refused("idempotency-key-missing")
    case_id = UUID(bytes=uuid7().bytes)
    with door.bell.waiting(case_id, reader_of(key)) as waiter:
        async with read_submission(request, door.services.settings) as asked:
            submission = _submission(door, key, asked, idempotency_key, request.headers.get("traceparent"))
            accepted = await run_in_threadpool(_take_in, door, submission, asked.webhook_endpoint_id, case_id)
        until = time.monotonic() + wait_s
        if not accepted.is_replay:
            # It cannot have an answer that the bell does not bring: the first reading is saved.
            await waiter.wait(min(wait_s, LOOK_ANYWAY_S))
            row = await _answered(door, key, case_id, waiter, until)
    if accepted.is_replay:
        with door.bell.waiting(accepted.case_id, reader_of(key)) as waiter:
            row = await _answered(door, key, accepted.case_id, waiter, until)
    is_answered = bool(wait_s) and _has_answer(row)
    headers = {"Location": f"/v1/cases/{public_id('case', row.id)}", "ETag": f'"{row.version}"'}
    if accepted.is_replay:
        headers["Idempotency-Replayed"] = "true"
    if wait_s:
        headers["Preference-Applied"] = f"wait={wait_s:.0f}"
    if not is_answered:
        headers["Retry-After"] = "2"
    return case_response(row, status=200 if is_answered else 202, headers=headers, result_body=row.result_body if is_answered else None)


def _take_in(door: Door, asked: Submission, endpoint_id: str | None, case_id: UUID) -> Accepted:
    submission = replace(asked, endpoint_id=_endpoint_of(door, asked.tenant_id, endpoint_id))
    with door.admissions.coming():
        return receive(
            submission, case_id=case_id, uploads=door.services.uploads, accept=door.admissions.ask, now=door.services.clock.now()
        )


def _submission(door: Door, key: ApiKey, asked: ReadSubmission, idempotency_key: str, traceparent: str | None) -> Submission:
    longest_s = door.services.settings.deadline_s
    return Submission(
        tenant_id=key.tenant_id,
        lane=asked.lane,
        budget_s=min(asked.deadline_s or longest_s, longest_s),
        idempotency_key=idempotency_key,
        files=asked.files,
        source=asked.source,
        paths=asked.paths,
        client_reference=asked.client_reference,
        traceparent=traceparent,
    )


def _endpoint_of(door: Door, tenant_id: UUID, asked: str | None) -> UUID | None:
    if asked is None:
        return None
    endpoint_id = parse_public_id("whe", asked)
    if endpoint_id is None or find_endpoint(door.services.ledger, endpoint_id, tenant_id=tenant_id) is None:
        raise Refused("invalid", "no such webhook endpoint")
    return endpoint_id


@router.get("/{case_id}", response_model=CaseView, summary="Read a case")
async def show(
    case_id: CaseId,
    key: Reader,
    door: Place,
    wait_s: WaitS,
    if_none_match: Annotated[str | None, Header(description="The ETag that you have.")] = None,
) -> Response:
    """Read a case. With `Prefer: wait=n` the reply waits for the case's answer, n seconds at most."""
    with door.bell.waiting(case_id, reader_of(key)) as waiter:
        row = await _answered(door, key, case_id, waiter, time.monotonic() + wait_s)
    headers = {"ETag": f'"{row.version}"', "Cache-Control": "private, no-cache"}
    if wait_s:
        headers["Preference-Applied"] = f"wait={wait_s:.0f}"
    if CaseState(row.state) not in TERMINAL:
        age_s = (utc_now() - row.accepted_at).total_seconds()
        headers["Retry-After"] = "2" if age_s < 10 else "5" if age_s < 60 else "10"
    if if_none_match == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return case_response(row, headers=headers, result_body=row.result_body)


async def _answered(door: Door, key: ApiKey, case_id: UUID, waiter: Waiter, until: float) -> Row[Any]:
    """The case, once it has an answer or the wait is over (`until`, monotonic seconds)."""
    while True:
        row = waiter.row or await run_in_threadpool(read_answered_case, door.services.ledger, case_id, reader_of(key))
        if row is None or row.tenant_id != key.tenant_id:
            raise Refused("not-found")
        left_s = until - time.monotonic()
        if _has_answer(row) or left_s <= 0:
            return row
        await waiter.wait(min(left_s, LOOK_ANYWAY_S))


def reader_of(key: ApiKey) -> LedgerReader:
    """Who reads, as the ledger writes it down."""
    return LedgerReader(key.tenant_id, key.id)


def _has_answer(row: Row[Any]) -> bool:
    return row.result_version > 0 or CaseState(row.state) in TERMINAL


@router.get("/{case_id}/result", summary="Read a result")
async def show_result(case_id: CaseId, key: Reader, door: Place, version: Annotated[int | None, Query(ge=1)] = None) -> Response:
    """Read the newest result, or the version that is asked for, exactly as it was written."""
    row = await require_result(door, key, case_id, version)
    headers = {"ETag": f'"{row.version}"', "Cache-Control": "private, no-cache"}
    return Response(row.body, media_type="application/json", headers=headers)


@router.get("/{case_id}/timeline", response_model=TimelineView, summary="See where the time went")
async def show_timeline(case_id: CaseId, key: Reader, door: Place) -> TimelineView:
    """The seven stages with their times, every state change, and the callbacks."""
    row = await require_case(door, key, case_id)
    events = await run_in_threadpool(read_events, door.services.ledger, case_id, tenant_id=key.tenant_id)
    deliveries = await run_in_threadpool(deliveries_of, door.services.ledger, case_id)
    delivered = [delivery.at for delivery in deliveries if delivery.state == "delivered"]
    return TimelineView(
        case_id=public_id("case", case_id),
        stages=stage_times(row, min(delivered) if delivered else None),
        events=tuple(event_view(event) for event in events),
        deliveries=delivery_views(deliveries),
    )


async def watched_case(case_id: CaseId, key: Reader, door: Place) -> tuple[UUID, ApiKey]:
    """Check the case before the stream begins: afterwards no status can be sent."""
    await require_case(door, key, case_id)
    return case_id, key


@router.get("/{case_id}/events", response_class=EventSourceResponse, summary="Watch a case")
async def watch(
    watched: Annotated[tuple[UUID, ApiKey], Depends(watched_case)], door: Place, last_event_id: Annotated[int, Header(ge=0)] = 0
) -> AsyncIterator[ServerSentEvent]:
    """Server-sent events: one for each state change, its version as id; ends after the last. Resumes after `Last-Event-ID`."""
    case_id, key = watched
    seen = last_event_id
    with door.bell.waiting(case_id) as waiter:
        while True:
            for row in await run_in_threadpool(read_events, door.services.ledger, case_id, tenant_id=key.tenant_id, after_version=seen):
                seen = row.version
                yield ServerSentEvent(event="case.moved", id=str(row.version), data=event_view(row))
                if CaseState(row.entered_state) in TERMINAL:
                    return
            await waiter.wait(EVENTS_LOOK_S)


class Page:
    """Which part of the list is asked for."""

    def __init__(
        self,
        status: CaseStatus | None = None,
        lane: LaneName | None = None,
        since: datetime | None = None,
        cursor: str | None = None,
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
    ) -> None:
        self.status, self.lane, self.since, self.cursor, self.limit = status, lane, since, cursor, limit


@router.get("", response_model=CaseList, summary="List cases")
async def show_list(
    key: Reader,
    door: Place,
    page: Annotated[Page, Depends()],
) -> CaseList:
    """The tenant's cases, newest first."""
    before = parse_cursor(page.cursor) if page.cursor else None
    if page.cursor and before is None:
        raise Refused("malformed", "the cursor is none of ours")
    filters: dict[str, str | datetime | None] = {"state": page.status, "lane": page.lane, "since": page.since}
    rows = await run_in_threadpool(list_cases, door.services.ledger, key.tenant_id, limit=page.limit, before=before, filters=filters)
    cursor = rows[-1].id.hex if len(rows) == page.limit else None
    return CaseList(cases=tuple(case_view(row) for row in rows), next_cursor=cursor)


@router.post("/{case_id}/cancel", status_code=202, response_model=CaseView, summary="Cancel a case")
async def withdraw(case_id: CaseId, key: Writer, door: Place) -> Response:
    """End a case that needs no answer any more; 409 where it has one."""
    for _ in range(CANCEL_TRIES):
        row = await require_case(door, key, case_id)
        if CaseState(row.state) in TERMINAL:
            raise Refused("case-already-ended", case_id=public_id("case", case_id))
        try:
            await run_in_threadpool(cancel, door.app, door.services, row)
        except StaleCompletion:
            continue  # it moved between our reading and our writing
        return case_response(await require_case(door, key, case_id), status=202)
    raise Refused("case-moved", case_id=public_id("case", case_id))


async def require_result(door: Door, key: ApiKey, case_id: UUID, version: int | None) -> Row[Any]:
    """A result of this tenant's case, the newest where no version is named; 404 where there is none."""
    row = await run_in_threadpool(read_result, door.services.ledger, case_id, reader_of(key), version=version)
    if row is None:
        await require_case(door, key, case_id)
        raise Refused("result-not-ready", case_id=public_id("case", case_id))
    return row


async def require_case(door: Door, key: ApiKey, case_id: UUID) -> Row[Any]:
    """A case of this tenant, as it stands; 404 where there is none."""
    row = await run_in_threadpool(read_case, door.services.ledger, case_id, tenant_id=key.tenant_id)
    if row is None:
        raise Refused("not-found")
    return row


def case_response(row: Row[Any], *, status: int = 200, headers: dict[str, str] | None = None, result_body: str | None = None) -> Response:
    """One case as JSON; a result goes out as it was written, byte for byte."""
    view = case_view(row)
    # Written by pydantic's own serialiser: a second pass through the framework's costs as much as the query.
    body = view.model_dump_json(exclude={"result"})[:-1] + f',"result":{result_body or "null"}}}'
    return Response(body, status_code=status, media_type="application/json", headers=headers)
