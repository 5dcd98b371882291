"""The answer to a case that the model has not read yet: what is known, said as such, and never a guess."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from pipeline.cases.digests import chain_of
from schemas.identifiers import public_id
from schemas.report import ImageReading, ImageStatus, PreliminaryReason, Report
from schemas.work import CaseInput, CaseWork, PreparedCase, PreparedImage

SENTENCES: dict[PreliminaryReason, str] = {
    "inference-wait": "the case waits for the model longer than usual",
    "deadline": "the reading was not finished by the deadline",
}


@dataclass(frozen=True, slots=True)
class OpenCase:
    """What the ledger knows of a case that is to be answered unread."""

    case_id: UUID
    version: int
    """Of the result that is written now."""
    input: CaseInput
    work: CaseWork


def preliminary_report(case: OpenCase, reason: PreliminaryReason, *, at: datetime) -> Report:
    """Say that a case is not read yet, and what is known of its images.

    Returns
    -------
    A report of kind `preliminary` and outcome `not_yet_read`: no findings, no scores, no algorithm. Images that cannot be
    read, or that no model applies to, are named already where intake has seen them.
    """
    prepared = case.work.prepared
    images = _images(prepared) if prepared else ()
    headers = [instance.header for instance in prepared.instances if instance.header] if prepared else []
    return Report(
        case_id=public_id("case", case.case_id),
        version=case.version,
        kind="preliminary",
        outcome="not_yet_read",
        summary=f"Not yet read by the AI: {SENTENCES[reason]}{_quality(images)}. A final answer follows.",
        is_complete=False,
        study_instance_uid=headers[0].study_instance_uid if headers else None,
        images=images,
        preliminary_reason=reason,
        input_digest=_input_digest(case),
        limits=(),
        created_at=at,
    )


def _input_digest(case: OpenCase) -> str | None:
    if case.work.prepared:
        return chain_of(instance.digest for instance in case.work.prepared.instances)
    digests = [instance.digest for instance in case.input.instances]
    # A repeated instance counts once, as fetch will count it.
    return chain_of(dict.fromkeys(digest for digest in digests if digest)) if all(digests) else None


def _images(prepared: PreparedCase) -> tuple[ImageReading, ...]:
    known = [_image(prepared, image) for image in prepared.images]
    unreadable = [
        ImageReading(sop_instance_uid=None, frame=1, status="unreadable", reason=instance.failure, digest=instance.digest)
        for instance in prepared.instances
        if instance.failure is not None
    ]
    return (*known, *unreadable)


def _image(prepared: PreparedCase, image: PreparedImage) -> ImageReading:
    instance = prepared.instances[image.instance]
    header = instance.header
    status: ImageStatus = "not_yet_read" if image.outcome == "ready" else image.outcome
    return ImageReading(
        sop_instance_uid=header.sop_instance_uid if header else None,
        series_instance_uid=header.series_instance_uid if header else None,
        frame=image.frame,
        status=status,
        reason=image.reason,
        warnings=header.warnings if header else (),
        digest=instance.digest,
        fingerprint=image.fingerprint,
    )


def _quality(images: tuple[ImageReading, ...]) -> str:
    """What is known of the images' quality, where it is bad news."""
    bad_count = sum(image.status in ("unreadable", "not_assessable") for image in images)
    return f"; {bad_count} of {len(images)} images cannot be assessed" if bad_count else ""
