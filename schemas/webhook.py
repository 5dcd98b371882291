"""What a receiver is told: thin events without patient data. It reads the result with its own credentials."""

from datetime import UTC, datetime
from typing import Annotated, Final, Literal

from pydantic import AwareDatetime, Field, PlainSerializer

from schemas.frozen import Frozen
from schemas.report import Outcome, ResultKind

CaseEventType = Literal[
    "case.accepted", "case.preliminary", "case.completed", "case.amended", "case.deferred", "case.failed", "case.cancelled"
]
EndpointEventType = Literal["endpoint.test", "endpoint.disabled"]
WebhookEventType = CaseEventType | EndpointEventType

OFF_BY_DEFAULT: Final[frozenset[WebhookEventType]] = frozenset({"case.accepted"})
"""An endpoint gets these only where it asks for them."""

CaseStatus = Literal[
    "accepted",
    "fetching",
    "awaiting_inference",
    "inferring",
    "awaiting_report",
    "postprocessing",
    "deferred",
    "completed",
    "failed",
    "cancelled",
]


def _rfc3339(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


Moment = Annotated[AwareDatetime, PlainSerializer(_rfc3339, when_used="json")]
"""RFC 3339 in UTC with milliseconds."""

Link = Annotated[str, Field(max_length=1024)]


class CaseLinks(Frozen):
    """Where to read on, with the receiver's own credentials."""

    case: Link
    result: Link | None = None
    """Absent while there is no result."""


class CaseEventData(Frozen):
    """Where a case stood at the event's timestamp."""

    case_id: str = Field(pattern=r"^case_[0-9a-f]{32}$")
    client_reference: str | None = Field(default=None, max_length=128)
    """As the client gave it with the request."""
    version: int = Field(ge=0)
    """Rises with every result of the case. No order of arrival is promised: keep the highest."""
    status: CaseStatus
    result_kind: ResultKind | None = None
    outcome: Outcome | None = None
    lane: Literal["urgent", "routine", "compensation"]
    links: CaseLinks


class CaseEvent(Frozen):
    """The body of a webhook about a case."""

    type: CaseEventType
    timestamp: Moment
    """When it happened, not when it was sent."""
    data: CaseEventData


class EndpointEventData(Frozen):
    """Which endpoint, and why it is told."""

    endpoint_id: str = Field(pattern=r"^whe_[0-9a-f]{32}$")
    reason: str | None = Field(default=None, max_length=64)
    """A code, for `endpoint.disabled`."""


class EndpointEvent(Frozen):
    """The body of a webhook about an endpoint itself."""

    type: EndpointEventType
    timestamp: Moment
    data: EndpointEventData


WebhookEvent = Annotated[CaseEvent | EndpointEvent, Field(discriminator="type")]
