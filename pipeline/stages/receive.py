"""Stage 1: take a submission in. What it promises with a 202 is on the disk before it returns."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO
from uuid import UUID

from pipeline.deadline import Deadline
from pipeline.flow import Lane
from pipeline.persistence.ledger.admission import Accepted, NewCase
from pipeline.persistence.uploads import ObjectPlace, received_key
from schemas.work import CaseInput, ReceivedInstance

Accept = Callable[[NewCase], Accepted]
"""Commits a new case; raises `KeyReused` or `LedgerUnavailable`."""


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


def receive(submission: Submission, *, case_id: UUID, uploads: ObjectPlace, accept: Accept, now: datetime) -> Accepted:
    """Keep the instances and commit the case, or find the case that the same key already made.

    Parameters
    ----------
    submission
        What the client asks for.
    case_id
        The name of the case, should it be a new one.
    uploads
        Keeps the instances' bytes.
    accept
        Commits the case, alone or with others that come at the same time.
    now
        When it was asked for: the deadline counts from here.

    Raises
    ------
    KeyReused
        The idempotency key was used for another request.
    SourceUnavailable
        The upload store is away or full. Nothing was promised.
    LedgerUnavailable
        The ledger is away. Nothing was promised.
    """
    accepted: Accepted | None = None
    try:
        case_input = _keep(submission, case_id, uploads)
        accepted = accept(
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
        key = received_key(case_id, number)
        uploads.write(key, data)
        kept.append(ReceivedInstance(key=key, digest=hashlib.sha256(data).hexdigest(), size_bytes=len(data)))
    return CaseInput(instances=tuple(kept))


def _fingerprint(submission: Submission, case_input: CaseInput) -> bytes:
    """What makes two requests the same: the content and the wishes, not the names that we gave."""
    parts = [submission.lane.value, f"{submission.budget_s:.3f}", submission.client_reference or "", str(submission.endpoint_id or "")]
    parts += [case_input.source, *(instance.digest or instance.key for instance in case_input.instances)]
    return hashlib.sha256("\0".join(parts).encode()).digest()
