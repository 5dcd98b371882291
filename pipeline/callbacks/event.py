"""The body of a webhook: built once, stored, and sent byte for byte at every attempt."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from pipeline.flow import Lane
from schemas.identifiers import public_id
from schemas.report import Outcome, ResultKind
from schemas.webhook import (
    CaseEvent,
    CaseEventData,
    CaseEventType,
    CaseLinks,
    CaseStatus,
    EndpointEvent,
    EndpointEventData,
    EndpointEventType,
)


@dataclass(frozen=True, slots=True)
class CaseFacts:
    """What the ledger knows of a case when an event happens."""

    case_id: UUID
    status: CaseStatus
    lane: Lane
    version: int = 0
    """Of the newest result; 0 while there is none."""
    client_reference: str | None = None
    result_kind: ResultKind | None = None
    outcome: Outcome | None = None


def case_event_body(event_type: CaseEventType, facts: CaseFacts, *, at: datetime, public_url: str) -> bytes:
    """Write what happened to a case as compact JSON, UTF-8; the limits of the fields keep it under 4 kB.

    Parameters
    ----------
    at
        When it happened.
    public_url
        The gateway as the receiver reaches it, such as `https://reads.example`.
    """
    case_id = public_id("case", facts.case_id)
    case_url = f"{public_url.rstrip('/')}/v1/cases/{case_id}"
    result_url = None if facts.result_kind is None else f"{case_url}/result?version={facts.version}"
    data = CaseEventData(
        case_id=case_id,
        client_reference=facts.client_reference,
        version=facts.version,
        status=facts.status,
        result_kind=facts.result_kind,
        outcome=facts.outcome,
        lane=facts.lane.value,
        links=CaseLinks(case=case_url, result=result_url),
    )
    return CaseEvent(type=event_type, timestamp=at, data=data).model_dump_json().encode()


def endpoint_event_body(event_type: EndpointEventType, *, endpoint_id: UUID, at: datetime, reason: str | None = None) -> bytes:
    """Write what happened to an endpoint, or a test message, as compact JSON."""
    data = EndpointEventData(endpoint_id=public_id("whe", endpoint_id), reason=reason)
    return EndpointEvent(type=event_type, timestamp=at, data=data).model_dump_json().encode()
