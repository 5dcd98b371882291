"""Stage 5: from the model's map to measured regions on the source image, and the pictures that show them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Final
from uuid import UUID

from pipeline.cases.identity import require_own
from pipeline.cases.reading import CaseReading, MeasuredRegion, ReadImage
from pipeline.errors import ModelFailed, TensorMissing
from pipeline.imaging.arrays import FloatImage, StoredImage
from pipeline.imaging.components import Component, find_components
from pipeline.imaging.letterbox import undo_letterbox
from pipeline.imaging.measure import box_of, mean_probability, measure_mean, measure_size
from pipeline.imaging.overlay import draw_overlay, probability_png
from pipeline.imaging.photometric import luminance, to_display_u8
from pipeline.imaging.rescale import to_modality
from pipeline.tensors.store import AnyArray, TensorStore
from schemas.instance import InstanceHeader
from schemas.model_card import ModelCard
from schemas.report import ImageStatus
from schemas.tensor import TensorHandle
from schemas.work import CaseInput, CaseWork, InferredCase, PreparedCase, PreparedImage, PreparedInstance

Fetch = Callable[[TensorHandle], AnyArray]

PRESENCE: Final = "presence"
MALIGNANCY: Final = "malignancy"
NO_OUTLINE: Final = "presence-without-outline"
"""The model says that something is there and outlines nothing: neither a finding nor the absence of one."""
NO_IMAGE: Final = "no-image"
"""An instance that gave no image, without a reason."""

HEADLINES: Final[dict[ImageStatus, str]] = {
    "findings": "AI result, not verified.",
    "nothing_found": "No finding (AI, not verified).",
    "not_assessable": "Not assessable (AI, not verified).",
}


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the model said of one image, and the image itself, on the source grid."""

    probability: FloatImage
    """(row, column), 0 to 1"""
    scores: dict[str, float]
    stored: StoredImage
    """(row, column) or (row, column, sample)"""
    header: InstanceHeader


def postprocess(work: CaseWork, *, case_id: UUID, received: CaseInput, card: ModelCard, tensors: TensorStore) -> CaseReading:
    """Read every image of a case: outline, measure, judge by the card's thresholds, and draw.

    Parameters
    ----------
    work
        What intake and, where an image was ready for the model, inference left in the ledger.
    case_id
        Checked against the work and every tensor that is read.
    received
        What the case is about: the work must be of these instances.
    card
        The card of the model that read the case.
    tensors
        Holds the probability maps and the stored values. Without a ready image it is not asked.

    Raises
    ------
    TensorMissing
        A tensor is gone, or what an earlier pool should have left.
    IdentityMismatch
        A tensor, or a part of the work, is not this case's.
    ModelFailed
        The answer is another model's than the card's, or has other scores.
    """
    prepared, inferred = work.prepared, work.inferred
    if prepared is None:
        raise TensorMissing("the case was not prepared", case_id=case_id)
    require_own(work, case_id=case_id, received=received)
    if inferred is not None and inferred.model != card.reference:
        raise ModelFailed("the answer is another model's", case_id=case_id, model=inferred.model, card=card.reference)
    # Each tensor is read, and its digest checked, once; its frames are many.
    fetch: Fetch = cache(partial(tensors.get, case_id=case_id))
    images: list[ReadImage] = []
    findings_count = 0
    for image in _every_image(prepared):
        instance = prepared.instances[image.instance]
        if instance.failure is None and image.outcome == "ready":
            answer = _answer(image, instance, inferred, card=card, fetch=fetch)
            read = _read(image, instance, answer, card=card, first_number=findings_count + 1)
        else:
            read = _passed_through(image, instance)
        findings_count += len(read.regions) if read.status == "findings" else 0
        images.append(read)
    return CaseReading(prepared=prepared, inferred=inferred, images=tuple(images))


def _every_image(prepared: PreparedCase) -> Iterator[PreparedImage]:
    """The images in the order of their instances; an instance that gave none stands for itself."""
    for index in range(len(prepared.instances)):
        of_instance = sorted((image for image in prepared.images if image.instance == index), key=lambda image: image.frame)
        yield from of_instance or [PreparedImage(instance=index, frame=1, outcome="not_assessable", reason=NO_IMAGE)]


def _passed_through(image: PreparedImage, instance: PreparedInstance) -> ReadImage:
    """An image that the model was not shown keeps the reason for it."""
    if instance.failure is not None:
        return ReadImage(image=image, instance=instance, status="unreadable", reason=instance.failure)
    status: ImageStatus = "not_applicable" if image.outcome == "not_applicable" else "not_assessable"
    return ReadImage(image=image, instance=instance, status=status, reason=image.reason)


def _answer(image: PreparedImage, instance: PreparedInstance, inferred: InferredCase | None, *, card: ModelCard, fetch: Fetch) -> _Answer:
    header, stored = instance.header, instance.stored
    if inferred is None or header is None or stored is None or image.row is None or image.placement is None:
        raise TensorMissing("what an earlier pool should have left for this image is gone", instance=image.instance, frame=image.frame)
    scores = inferred.scores[image.row]
    if len(scores) != len(card.scores):
        raise ModelFailed("the answer has other scores than the card", scores_count=len(scores), card=card.reference)
    probability_u8 = fetch(inferred.probability)[image.row]
    return _Answer(
        probability=undo_letterbox(probability_u8, image.placement, unit=255),
        scores=dict(zip(card.scores, scores, strict=True)),
        stored=fetch(stored)[image.frame - 1],
        header=header,
    )


def _read(image: PreparedImage, instance: PreparedInstance, answer: _Answer, *, card: ModelCard, first_number: int) -> ReadImage:
    """Judge one image. The presence score opens the gate; only then is an outline a finding."""
    thresholds = card.thresholds
    components = find_components(answer.probability, threshold=thresholds.mask, min_area_px=thresholds.min_area_px)
    is_present = answer.scores[PRESENCE] >= thresholds.presence
    status = _status(is_present=is_present, is_outlined=bool(components))
    overlay = draw_overlay(
        to_display_u8(answer.stored, answer.header, fallback=card.input.window),
        components if status == "findings" else (),
        headline=HEADLINES[status],
        model=f"{card.name} {card.version}",
        first_number=first_number,
    )
    return ReadImage(
        image=image,
        instance=instance,
        status=status,
        reason=NO_OUTLINE if status == "not_assessable" else None,
        scores=answer.scores,
        is_suspicious=status == "findings" and answer.scores[MALIGNANCY] >= thresholds.malignancy,
        regions=tuple(_measure(component, answer) for component in components),
        artefacts={"overlay.png": overlay, "probability.png": probability_png(answer.probability)},
    )


def _status(*, is_present: bool, is_outlined: bool) -> ImageStatus:
    if not is_present:
        return "nothing_found"
    return "findings" if is_outlined else "not_assessable"


def _measure(component: Component, answer: _Answer) -> MeasuredRegion:
    header = answer.header
    sizes = measure_size(component, spacing_mm=header.spacing_mm)
    mean = measure_mean(component, _values(answer.stored[component.window], header), modality=header.modality)
    return MeasuredRegion(
        box=box_of(component),
        centroid_px=component.centroid_px,
        measurements=(*sizes, mean),
        probability=mean_probability(component, answer.probability),
    )


def _values(stored: StoredImage, header: InstanceHeader) -> FloatImage:
    """Modality values of a part of an image; a colour image has none, its luminance stands in."""
    if stored.ndim == 3:
        return luminance(stored)
    return to_modality(stored, slope=header.slope, intercept=header.intercept)
