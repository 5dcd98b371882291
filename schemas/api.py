"""What the HTTP door answers with. Requests and answers have models of their own."""

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field

from schemas.frozen import Frozen
from schemas.webhook import CaseStatus

LaneName = Literal["urgent", "routine"]

Plain = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]*$")]
"""Text without control characters."""


class SourceSubmission(Frozen):
    """A submission that names images in a configured source instead of uploading them."""

    source: str = Field(max_length=64, examples=["archive"])
    """The name of a source in the operator's settings; never a URL."""
    paths: tuple[Plain, ...] = Field(min_length=1, examples=[["2026/05/us-0001.dcm"]])
    """Objects below the source."""
    lane: LaneName = "routine"
    deadline_s: float | None = Field(default=None, gt=0)
    """Seconds until the answer is due; at most the operator's limit."""
    client_reference: Plain | None = Field(default=None, max_length=128, examples=["order-17"])
    """Yours; returned as it is. Keep patient data out of it."""
    webhook_endpoint_id: str | None = Field(default=None, examples=["whe_0197c1d2e3f4a5b6c7d8e9f001122334"])


class FailureView(Frozen):
    """Why a case failed."""

    code: str
    title: str
    advice: str
    facts: dict[str, Any] = Field(default_factory=dict)


class CaseView(Frozen):
    """One case as it stands."""

    case_id: str = Field(examples=["case_0197c1d2e3f4a5b6c7d8e9f001122334"])
    status: CaseStatus
    lane: str
    client_reference: str | None = None
    accepted_at: AwareDatetime
    deadline_at: AwareDatetime
    changed_at: AwareDatetime
    ended_at: AwareDatetime | None = None
    version: int
    """Goes up with every change; the ETag."""
    result_version: int
    """0 before the first answer."""
    is_preliminary: bool
    """The newest result is a preliminary one and the case goes on."""
    failure: FailureView | None = None
    result: dict[str, Any] | None = None
    """The newest result, by `docs/report.schema.json`; only where it was asked for or waited for."""
    links: dict[str, str]


class CaseList(Frozen):
    """A page of cases, newest first."""

    cases: tuple[CaseView, ...]
    next_cursor: str | None = None
    """Give it back as `cursor` for the next page; null on the last."""


class PutOffView(Frozen):
    """A case in the compensation queue."""

    case_id: str
    status: CaseStatus
    accepted_at: AwareDatetime
    reason: str | None = None
    """Why it was put off: a code."""
    attempts: int
    """Tries since it was put off."""
    due_at: AwareDatetime
    """Not tried again before."""
    worklist_at: AwareDatetime | None = None
    """Since when it waits for a human; null while it is still tried."""


class PutOffList(Frozen):
    """The compensation queue of a tenant: those for a human first, then the oldest."""

    cases: tuple[PutOffView, ...]


class StageTimes(Frozen):
    """One of the seven stages in a case's timeline."""

    stage: str
    entered_at: AwareDatetime | None = None
    left_at: AwareDatetime | None = None
    wait_ms: int | None = None
    """Since the stage before was left."""
    duration_ms: int | None = None


class CaseEventView(Frozen):
    """One state change."""

    version: int
    status: CaseStatus
    previous: CaseStatus | None = None
    attempt: int
    code: str | None = None
    at: AwareDatetime


class DeliveryView(Frozen):
    """One callback and what came of its newest attempt."""

    event_id: str
    type: str
    state: Literal["pending", "delivered", "dead", "dropped"]
    attempts: int
    outcome: str | None = None
    status_code: int | None = None
    next_attempt_at: AwareDatetime | None = None


class TimelineView(Frozen):
    """Where a case's time went."""

    case_id: str
    stages: tuple[StageTimes, ...]
    """All seven, in order; those not reached are empty."""
    events: tuple[CaseEventView, ...]
    deliveries: tuple[DeliveryView, ...]


class EndpointRequest(Frozen):
    """A place that wants to be told."""

    url: str = Field(max_length=1024, examples=["https://ris.example/hooks/secondread"])


class EndpointView(Frozen):
    """A webhook endpoint. The secret is shown once, when it is made."""

    webhook_endpoint_id: str
    url: str
    secret: str | None = None


class ProblemItem(Frozen):
    """One fault of a request."""

    pointer: str
    code: str
    message: str


class Problem(Frozen):
    """RFC 9457 problem details: every refusal has this shape."""

    type: str = Field(examples=["/problems/idempotency-key-missing"])
    title: str
    status: int
    detail: str
    instance: str
    """urn:uuid of this very answer; quote it when you ask."""
    code: str
    advice: str
    retryable: bool
    retry_after_s: int | None = None
    case_id: str | None = None
    errors: tuple[ProblemItem, ...] = ()
