"""The outcome of a whole case, and the one sentence that says it to a human."""

from collections.abc import Iterable
from typing import Literal

from pipeline.cases.reading import CaseReading, MeasuredRegion, ReadImage

ReadOutcome = Literal["findings", "nothing_found", "not_assessable", "not_applicable"]
"""`Outcome` of a case that was read."""


def outcome_of(reading: CaseReading) -> ReadOutcome:
    """One finding decides for the case; silence counts only where an image was read.

    What could not be read outranks what the model was not made for: it may have held a finding.
    """
    statuses = {image.status for image in reading.images}
    if "findings" in statuses:
        return "findings"
    if "nothing_found" in statuses:
        return "nothing_found"
    return "not_applicable" if statuses == {"not_applicable"} else "not_assessable"


def summarise(reading: CaseReading) -> str:
    """Say in one sentence what was found, in how many images, and what was not read."""
    match outcome_of(reading):
        case "findings":
            return _sentence(_findings_clause(reading.images), _unread_clause(reading.images))
        case "nothing_found":
            return _sentence(_nothing_clause(reading.images), _unread_clause(reading.images))
        case "not_applicable":
            return _sentence(f"{_not_applicable_clause(reading.images)}: not applicable")
        case "not_assessable":
            return _sentence(f"Not assessable: {_listed(image.reason or image.status for image in reading.images)}")


def _findings_clause(images: tuple[ReadImage, ...]) -> str:
    positive = [image for image in images if image.status == "findings"]
    findings_count = sum(len(image.regions) for image in positive)
    largest, holder = max(((region, image) for image in positive for region in image.regions), key=lambda pair: _rank(pair[0]))
    clause = f"{_counted(findings_count, 'finding')} in {len(positive)} of {len(images)} images; largest {_axes(largest)}"
    if holder.is_suspicious:
        return f"{clause}, suspicious"
    if any(image.is_suspicious for image in positive):
        return f"{clause}; a smaller one suspicious"
    return clause


def _nothing_clause(images: tuple[ReadImage, ...]) -> str:
    read_count = sum(image.is_read for image in images)
    if read_count == len(images):
        return f"Nothing found in {_counted(read_count, 'image')}"
    return f"Nothing found in {read_count} of {len(images)} images"


def _unread_clause(images: tuple[ReadImage, ...]) -> str:
    unread_count = sum(not image.is_read for image in images)
    return f"; {_counted(unread_count, 'image')} not read" if unread_count else ""


def _not_applicable_clause(images: tuple[ReadImage, ...]) -> str:
    """Modality and body part are attributes of the image, not of the person."""
    headers = [image.instance.header for image in images if image.instance.header]
    reasons = {image.reason for image in images}
    if reasons == {"modality-not-covered"}:
        return f"No model for this modality ({_listed(header.modality for header in headers)})"
    if reasons == {"body-part-not-covered"}:
        return f"No model for this body part ({_listed(header.body_part or 'unstated' for header in headers)})"
    return f"No model for these images ({_listed(reason or 'no reason given' for reason in reasons)})"


def _rank(region: MeasuredRegion) -> tuple[bool, float]:
    """Order by area. One in pixels cannot be compared with one in millimetres, and comes after it."""
    area = next(measured for measured in region.measurements if measured.name == "area")
    return area.unit == "mm2", area.value


def _axes(region: MeasuredRegion) -> str:
    measured = {measurement.name: measurement for measurement in region.measurements}
    long_axis, short_axis = measured["long_axis"], measured["short_axis"]
    return f"{_length(long_axis.value)} x {_length(short_axis.value)} {long_axis.unit}"


def _length(value: float) -> str:
    """Whole numbers from ten on, a tenth below: a pixel is rarely finer."""
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _listed(words: Iterable[str]) -> str:
    return ", ".join(sorted(set(words)))


def _sentence(*clauses: str) -> str:
    return f"{''.join(clauses)}."
