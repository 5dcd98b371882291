"""`/v1/compensation`: cases that were put off, and what a human decides about them."""

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.engine import Row

from pipeline.cases.states import CaseState
from pipeline.errors import SecondreadError, StaleCompletion
from pipeline.persistence.ledger.admission import ApiKey
from pipeline.persistence.ledger.claims import read_unclaimed
from pipeline.persistence.ledger.compensation import ask_retry, put_off_cases
from schemas.api import CaseView, PutOffList, PutOffView
from schemas.identifiers import public_id
from workers.endings import Ending, fail
from workers.gateway.cases import CaseId, Place, case_response, require_case
from workers.gateway.door import Door
from workers.gateway.keys import Reader, Writer
from workers.gateway.problems import Refused

router = APIRouter(prefix="/v1/compensation", tags=["compensation"])


class ClosedByHand(SecondreadError):
    """A human has decided that a put-off case needs no reading by the AI any more."""

    code = "closed-by-hand"
    title = "The case was closed without a reading by the AI"
    advice = "Read the images without it; submit a new case if a reading is wanted after all."


@router.get("", response_model=PutOffList, summary="List put-off cases")
async def show_put_off(key: Reader, door: Place, limit: Annotated[int, Query(ge=1, le=500)] = 100) -> PutOffList:
    """The tenant's cases in the compensation queue: those for a human first, then the oldest."""
    found = await run_in_threadpool(put_off_cases, door.services.ledger, key.tenant_id, limit=limit)
    return PutOffList(
        cases=tuple(
            PutOffView(
                case_id=public_id("case", case.case_id),
                status=CaseState(case.state).value,
                accepted_at=case.accepted_at,
                reason=case.reason,
                attempts=case.attempts,
                due_at=case.due_at,
                worklist_at=case.worklist_at,
            )
            for case in found
        )
    )


@router.post("/{case_id}/retry", status_code=202, response_model=CaseView, summary="Try a put-off case again")
async def retry(case_id: CaseId, key: Writer, door: Place) -> Response:
    """Give a put-off case all its tries again, at once."""
    await _put_off(door, key, case_id)
    if not await run_in_threadpool(ask_retry, door.services.ledger, case_id, tenant_id=key.tenant_id, actor=_actor(key)):
        raise Refused("case-moved", case_id=public_id("case", case_id))
    return case_response(await require_case(door, key, case_id), status=202)


@router.post("/{case_id}/close", status_code=202, response_model=CaseView, summary="Close a put-off case")
async def close(case_id: CaseId, key: Writer, door: Place) -> Response:
    """End a put-off case without a reading by the AI."""
    await _put_off(door, key, case_id)
    await run_in_threadpool(_close, door, key, case_id)
    return case_response(await require_case(door, key, case_id), status=202)


async def _put_off(door: Door, key: ApiKey, case_id: CaseId) -> Row[Any]:
    row = await require_case(door, key, case_id)
    if row.state != CaseState.DEFERRED:
        raise Refused("case-not-put-off", case_id=public_id("case", case_id))
    return row


def _close(door: Door, key: ApiKey, case_id: CaseId) -> None:
    case = read_unclaimed(door.services.ledger, case_id)
    if case is None:
        raise Refused("not-found")
    # The event names who decided.
    services = replace(door.services, worker=_actor(key))
    try:
        fail(door.app, services, Ending(case, CaseState.DEFERRED, {}), ClosedByHand())
    except StaleCompletion as error:
        raise Refused("case-moved", case_id=public_id("case", case_id)) from error


def _actor(key: ApiKey) -> str:
    return f"key:{key.id.hex}"
