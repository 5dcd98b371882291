"""Stage 1: take a submission in. What it promises with a 202 is on the disk before it returns."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO
from uuid import UUID

from uuid6 import uuid7

from pipeline.deadline import Deadline
from pipeline.flow import Lane
from pipeline.persistence.ledger.admission import Accepted, NewCase, accept_case
from pipeline.persistence.ledger.engine import Ledger
from pipeline.persistence.uploads import ObjectPlace
from schemas.work import CaseInput, ReceivedInstance


@dataclass(frozen=True, slots=True)
class Submission:
    """What a client asks for: uploaded instances, or paths below a configured source."""

    tenant_id: UUID
    lane: Lane
    budget_s: float
    idempotency_key: str
    files: Sequence[BinaryIO] = ()
    source: str | None = None
    paths: Sequence[str] = ()
    client_reference: str | None = None
    endpoint_id: UUID | None = None
    traceparent: str | None = None


def receive(submission: Submission, *, uploads: ObjectPlace, ledger: Ledger, now: datetime) -> Accepted:
    """Keep the instances and commit the case, or find the case that the same key already made.

    Raises
    ------
    KeyReused
        The idempotency key was used for another request.
    SourceUnavailable
        The upload store is away or full. Nothing was promised.
    LedgerUnavailable
        The ledger is away. Nothing was promised.
    """
    case_id = UUID(bytes=uuid7().bytes)
    accepted: Accepted | None = None
    try:
        case_input = _keep(submission, case_id, uploads)
        accepted = accept_case(
            ledger,
            NewCase(
                id=case_id,
                tenant_id=submission.tenant_id,
                lane=submission.lane,
                input=case_input,
                accepted_at=now,
                deadline_at=Deadline.after(submission.budget_s, now=now).at,
                idempotency_key=submission.idempotency_key,
                fingerprint=_fingerprint(submission, case_input),
                client_reference=submission.client_reference,
                endpoint_id=submission.endpoint_id,
                traceparent=submission.traceparent,
            ),
        )
    finally:
        # A repeat, a refusal or an outage leaves no second copy behind.
        if submission.files and (accepted is None or accepted.is_replay):
            uploads.remove_case(case_id)
    return accepted


def _keep(submission: Submission, case_id: UUID, uploads: ObjectPlace) -> CaseInput:
    if submission.source is not None:
        return CaseInput(source=submission.source, instances=tuple(ReceivedInstance(key=path) for path in submission.paths))
    kept = []
    for number, file in enumerate(submission.files):
        data = file.read()
        key = f"{case_id.hex}/received/{number:04d}.dcm"
        uploads.write(key, data)
        kept.append(ReceivedInstance(key=key, digest=hashlib.sha256(data).hexdigest(), size_bytes=len(data)))
    return CaseInput(instances=tuple(kept))


def _fingerprint(submission: Submission, case_input: CaseInput) -> bytes:
    """What makes two requests the same: the content and the wishes, not the names that we gave."""
    parts = [submission.lane.value, f"{submission.budget_s:.3f}", submission.client_reference or "", str(submission.endpoint_id or "")]
    parts += [case_input.source, *(instance.digest or instance.key for instance in case_input.instances)]
    return hashlib.sha256("\0".join(parts).encode()).digest()
