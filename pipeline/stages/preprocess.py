"""Stage 3: decode, decide whether a model applies, bring each image to the model's range and size, park the tensors."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import numpy as np

from pipeline.cases.fetched import FetchedInstance
from pipeline.dicom.decoder import Decoder
from pipeline.dicom.errors import DecodeTimedOut
from pipeline.dicom.instance import DecodedInstance, StoredArray
from pipeline.errors import OutOfTime, RejectedInput
from pipeline.imaging.arrays import ByteImage
from pipeline.imaging.fingerprint import fingerprint
from pipeline.imaging.letterbox import letterbox
from pipeline.imaging.photometric import to_display_u8
from pipeline.inference.card import Cards, choose_card, why_not_applicable
from pipeline.tensors.store import AnyArray, TensorStore
from schemas.model_card import ModelCard
from schemas.tensor import TensorHandle
from schemas.work import PreparedCase, PreparedImage, PreparedInstance

TENSOR_LIFETIME: Final = timedelta(minutes=15)
"""Longer than any case takes; what nobody freed by then is reclaimed."""
CONSTANT_IMAGE: Final = "constant-image"
"""Every pixel has one value: there is nothing to read, and nothing found would be a lie."""


UNAPPLIED_TABLE: Final = "modality-lut-not-applied"
"""The header maps stored values by a table that was not applied: the values are not what the model was trained on."""


class MixedStudies(RejectedInput):
    """The instances of one case are of several studies: a result could end under the wrong patient."""

    code = "mixed-studies"
    title = "The instances belong to different studies"
    advice = "Submit one case for each study."


class TooManyImages(RejectedInput):
    """The case holds more images than its model reads in one case."""

    code = "too-many-images"
    title = "The case has more images than the model takes"
    advice = "Submit the images that are to be read, or several cases."


@dataclass(frozen=True, slots=True)
class PreprocessTools:
    """What the stage works with."""

    decoder: Decoder
    cards: Cards
    tensors: TensorStore
    decode_timeout_s: float
    until_s: float = math.inf
    """Monotonic seconds: the case's time is over then, and no instance is decoded beyond."""


@dataclass(frozen=True, slots=True)
class _Read:
    """One instance: decoded, or why not."""

    digest: str
    decoded: DecodedInstance | None = None
    failure: RejectedInput | None = None


class _Bench:
    """Where the tensors of one claim are put."""

    def __init__(self, tensors: TensorStore, case_id: UUID, generation: int, now: datetime) -> None:
        self.case_id = case_id
        self._tensors, self._generation = tensors, generation
        self._expires_at = now + TENSOR_LIFETIME

    def park(self, values: AnyArray) -> TensorHandle:
        return self._tensors.put(values, case_id=self.case_id, generation=self._generation, expires_at=self._expires_at)


def preprocess(
    fetched: Sequence[FetchedInstance], *, case_id: UUID, generation: int, tools: PreprocessTools, now: datetime
) -> PreparedCase:
    """Make the model input of a case.

    An instance that cannot be read does not spoil the others: it is named in the result. A case of which nothing
    can be read fails with the first instance's code.

    Raises
    ------
    RejectedInput
        No instance can be read, they are of several studies, or there are too many images.
    TensorStoreFull
        Nothing was kept; the case is tried again when others have left.
    DecoderCrashed, DecoderUnavailable
        The decoder died with an instance aboard, or none was free in time.
    OutOfTime
        The case's time was over before the last instance was decoded.
    """
    read = [_decode(instance, tools) for instance in fetched]
    decoded = [each.decoded for each in read if each.decoded]
    if not decoded:
        raise next(each.failure for each in read if each.failure)
    if len({instance.header.study_instance_uid for instance in decoded}) > 1:
        raise MixedStudies("the instances name several studies")
    card = next((card for each in decoded if (card := choose_card(tools.cards, each.header))), None)
    bench = _Bench(tools.tensors, case_id, generation, now)
    considered = card or next(card for card, _ in tools.cards.values())
    return _assemble(read, considered, bench)


def _decode(instance: FetchedInstance, tools: PreprocessTools) -> _Read:
    timeout_s = min(tools.decode_timeout_s, tools.until_s - time.monotonic())
    if timeout_s <= 0:
        raise OutOfTime("the time was over before an instance was decoded")
    try:
        return _Read(instance.digest, decoded=tools.decoder.decode(instance.data, timeout_s=timeout_s))
    except RejectedInput as error:
        if isinstance(error, DecodeTimedOut) and timeout_s < tools.decode_timeout_s:
            # It had less time than an instance may take: that says nothing of the instance.
            raise OutOfTime("the time was over while an instance was decoded") from error
        return _Read(instance.digest, failure=error)


def _assemble(read: Sequence[_Read], card: ModelCard, bench: _Bench) -> PreparedCase:
    instances: list[PreparedInstance] = []
    images: list[PreparedImage] = []
    inputs: list[ByteImage] = []
    for index, each in enumerate(read):
        if each.decoded is None:
            instances.append(PreparedInstance(digest=each.digest, failure=each.failure.code if each.failure else None))
            continue
        of_instance = _images_of(each.decoded, index, card, inputs)
        images += of_instance
        is_read = any(image.outcome == "ready" for image in of_instance)
        stored = bench.park(each.decoded.stored) if is_read else None
        instances.append(PreparedInstance(digest=each.digest, header=each.decoded.header, stored=stored))
    if len(inputs) > card.input.max_images:
        raise TooManyImages("the case has too many images", image_count=len(inputs), limit=card.input.max_images)
    model_input = bench.park(np.stack(inputs)[:, np.newaxis]) if inputs else None
    parts = {"instances": tuple(instances), "images": tuple(images), "model_input": model_input}
    return PreparedCase(model=card.reference, case_id=bench.case_id, **parts)


def _images_of(decoded: DecodedInstance, index: int, card: ModelCard, inputs: list[ByteImage]) -> list[PreparedImage]:
    """The frames of one instance; the model input of those that are ready is added to `inputs`."""
    reason = why_not_applicable(card, decoded.header)
    if reason is not None:
        return [PreparedImage(instance=index, frame=1, outcome="not_applicable", reason=reason)]
    return [_image_of(decoded, index, frame, card, inputs) for frame in range(1, decoded.header.frame_count + 1)]


def _image_of(decoded: DecodedInstance, index: int, frame: int, card: ModelCard, inputs: list[ByteImage]) -> PreparedImage:
    stored: StoredArray = decoded.stored[frame - 1]
    unfit = UNAPPLIED_TABLE if UNAPPLIED_TABLE in decoded.header.warnings else CONSTANT_IMAGE if stored.min() == stored.max() else None
    if unfit is not None:
        return PreparedImage(instance=index, frame=frame, outcome="not_assessable", reason=unfit)
    display = to_display_u8(stored, decoded.header, fallback=card.input.window)
    framed, placement = letterbox(display, card.input.side_px, spacing_mm=decoded.header.spacing_mm)
    inputs.append(framed)
    return PreparedImage(
        instance=index,
        frame=frame,
        outcome="ready",
        row=len(inputs) - 1,
        placement=placement,
        fingerprint=fingerprint(framed, model=card.reference),
    )
