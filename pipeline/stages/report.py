"""Stage 6: word what was read, number the findings, and name everything that the result was made from."""

from hashlib import sha256
from uuid import UUID

from pipeline.cases.digests import chain_of
from pipeline.cases.reading import CaseReading, MeasuredRegion, ReadImage, Revision
from pipeline.cases.summary import outcome_of, summarise
from schemas.identifiers import public_id
from schemas.model_card import FindingCodes, ModelCard
from schemas.report import Algorithm, BatchRecord, Finding, ImageReading, Report, tracking_uid
from schemas.work import InferredCase


def report(reading: CaseReading, *, case_id: UUID, card: ModelCard, revision: Revision) -> tuple[Report, dict[str, bytes]]:
    """Write one version of a case's result.

    Parameters
    ----------
    reading
        What `postprocess` found.
    case_id
        Names the report and, with a finding's place, its tracking UID.
    card
        The card of the model that read the case.
    revision
        Version, kind and time of this result.

    Returns
    -------
    The report, and the bytes of its artefacts by name: `image-<n>/overlay.png` and `image-<n>/probability.png`,
    where n counts the report's images from 1.
    """
    artefacts = [_artefacts(image, number) for number, image in enumerate(reading.images, start=1)]
    prepared, inferred = reading.prepared, reading.inferred
    headers = [instance.header for instance in prepared.instances if instance.header]
    written = Report(
        case_id=public_id("case", case_id),
        version=revision.version,
        kind=revision.kind,
        outcome=outcome_of(reading),
        summary=summarise(reading),
        is_complete=bool(reading.images) and all(image.is_read for image in reading.images),
        study_instance_uid=headers[0].study_instance_uid if headers else None,
        images=_images(reading.images, artefacts, case_id=case_id, card=card),
        algorithm=_algorithm(card, inferred, product_version=revision.product_version),
        batch=_batch(inferred) if inferred else None,
        input_digest=chain_of(instance.digest for instance in prepared.instances),
        model_input_digest=prepared.model_input.digest if prepared.model_input else None,
        model_output_digest=inferred.probability.digest if inferred else None,
        limits=card.limits,
        created_at=revision.at,
    )
    return written, {name: content for of_image in artefacts for name, content in of_image.items()}


def _artefacts(image: ReadImage, number: int) -> dict[str, bytes]:
    return {f"image-{number}/{name}": content for name, content in image.artefacts.items()}


def _images(
    images: tuple[ReadImage, ...], artefacts: list[dict[str, bytes]], *, case_id: UUID, card: ModelCard
) -> tuple[ImageReading, ...]:
    """Word each image; findings are counted through the report, as on the overlays."""
    written = []
    findings_count = 0
    for number, (image, of_image) in enumerate(zip(images, artefacts, strict=True), start=1):
        findings = tuple(
            _finding(region, image, number=findings_count + place, uid=tracking_uid(case_id, number, place), codes=card.codes)
            for place, region in enumerate(image.regions if image.status == "findings" else (), start=1)
        )
        findings_count += len(findings)
        written.append(_image(image, findings, of_image))
    return tuple(written)


def _image(image: ReadImage, findings: tuple[Finding, ...], artefacts: dict[str, bytes]) -> ImageReading:
    header = image.instance.header
    spacing_mm = header.spacing_mm if header else None
    return ImageReading(
        sop_instance_uid=header.sop_instance_uid if header else None,
        series_instance_uid=header.series_instance_uid if header else None,
        frame=image.image.frame,
        status=image.status,
        reason=image.reason,
        scores=dict(image.scores),
        length_unit=("mm" if spacing_mm else "px") if header else None,
        spacing_mm=spacing_mm,
        spacing_source=header.spacing_source if header else None,
        findings=findings,
        below_threshold=tuple(region.box for region in image.regions) if image.status == "nothing_found" else (),
        warnings=header.warnings if header else (),
        digest=image.instance.digest,
        fingerprint=image.image.fingerprint,
        artefacts={name: sha256(content).hexdigest() for name, content in artefacts.items()},
    )


def _finding(region: MeasuredRegion, image: ReadImage, *, number: int, uid: str, codes: FindingCodes) -> Finding:
    header = image.instance.header
    return Finding(
        number=number,
        tracking_uid=uid,
        concept=codes.finding,
        category=codes.category,
        site=codes.site,
        laterality=header.laterality if header else None,
        box=region.box,
        centroid_px=region.centroid_px,
        measurements=region.measurements,
        probability=region.probability,
        is_suspicious=image.is_suspicious,
    )


def _algorithm(card: ModelCard, inferred: InferredCase | None, *, product_version: str) -> Algorithm:
    """The weights are those that ran, where any ran."""
    return Algorithm(
        name=card.name,
        version=card.version,
        manufacturer=card.manufacturer,
        device_uid=card.device_uid,
        weights_sha256=inferred.weights_digest if inferred else card.weights_sha256,
        product_version=product_version,
        thresholds=card.thresholds.model_dump(),
    )


def _batch(inferred: InferredCase) -> BatchRecord:
    return BatchRecord(
        batch_id=inferred.batch_id,
        size=inferred.batch_size,
        position=inferred.batch_position,
        fired_because=inferred.fired_because,
        device=inferred.device,
        precision=inferred.precision,
        forward_s=inferred.forward_s,
    )
