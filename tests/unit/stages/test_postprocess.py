"""From the model's map to findings on the source image, with tensors in memory."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from io import BytesIO
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from pipeline.cases.reading import CaseReading, ReadImage
from pipeline.errors import IdentityMismatch, ModelFailed, TensorMissing
from pipeline.imaging.letterbox import letterbox
from pipeline.imaging.overlay import OUTLINE_RGB
from pipeline.stages.postprocess import postprocess
from pipeline.tensors.memory import MemoryStore
from schemas.instance import InstanceHeader
from schemas.model_card import ModelCard
from schemas.report import Box
from schemas.work import CaseInput, CaseWork, ImageOutcome, InferredCase, PreparedCase, PreparedImage, PreparedInstance, ReceivedInstance

AnyImage = npt.NDArray[Any]
Block = tuple[int, int, int, int]

SHAPE_PX = (48, 64)
LESION: Block = (10, 20, 16, 24)
"""Top, left, height, width on the source image."""
PRESENT = (0.05, 0.999)
"""Malignancy under its threshold, presence over its own: in the card's order."""


@dataclass
class Case:
    """Fills the tensor store and the ledger's work column as intake and inference would."""

    header: InstanceHeader
    card: ModelCard
    case_id: UUID
    tensors: MemoryStore
    expires_at: datetime
    instances: list[PreparedInstance] = field(default_factory=list)
    images: list[PreparedImage] = field(default_factory=list)
    maps: list[AnyImage] = field(default_factory=list)
    scores: list[tuple[float, ...]] = field(default_factory=list)

    def instance(self, stored: AnyImage | None = None, **facts: object) -> "Case":
        """One more instance; `stored` is (frame, row, column) or with samples."""
        stored = np.full((1, *SHAPE_PX), 60, dtype=np.uint8) if stored is None else stored
        handle = self.tensors.put(stored, case_id=self.case_id, generation=1, expires_at=self.expires_at)
        header = self.header.model_copy(update=facts)
        self.instances.append(PreparedInstance(digest=f"{len(self.instances):064x}", header=header, stored=handle))
        return self

    def answered(self, *blocks: Block, scores: tuple[float, ...] = PRESENT, frame: int = 1) -> "Case":
        """The model was shown a frame of the newest instance and outlined these blocks."""
        outlined = np.zeros(SHAPE_PX, dtype=np.uint8)
        for top, left, height, width in blocks:
            outlined[top : top + height, left : left + width] = 255
        framed, placement = letterbox(outlined, self.card.input.side_px)
        newest = len(self.instances) - 1
        self.images.append(PreparedImage(instance=newest, frame=frame, outcome="ready", row=len(self.maps), placement=placement))
        self.maps.append(framed)
        self.scores.append(scores)
        return self

    def turned_away(self, outcome: ImageOutcome, reason: str) -> "Case":
        self.images.append(PreparedImage(instance=len(self.instances) - 1, frame=1, outcome=outcome, reason=reason))
        return self

    def failed(self, code: str) -> "Case":
        self.instances.append(PreparedInstance(digest=f"{len(self.instances):064x}", failure=code))
        return self

    def prepared(self) -> PreparedCase:
        return PreparedCase(model=self.card.reference, instances=tuple(self.instances), images=tuple(self.images))

    def inferred(self) -> InferredCase:
        maps = np.stack(self.maps)
        return InferredCase(
            model=self.card.reference,
            weights_digest="b" * 64,
            probability=self.tensors.put(maps, case_id=self.case_id, generation=1, expires_at=self.expires_at),
            scores=tuple(self.scores),
            batch_id="batch-7",
            batch_size=4,
            batch_position=2,
            fired_because="full",
            device="cpu",
            forward_s=0.02,
        )

    def work(self) -> CaseWork:
        return CaseWork(prepared=self.prepared(), inferred=self.inferred() if self.maps else None)

    def reading(self, work: CaseWork | None = None) -> CaseReading:
        return postprocess(work or self.work(), case_id=self.case_id, received=self.received, card=self.card, tensors=self.tensors)

    @property
    def received(self) -> CaseInput:
        return CaseInput(instances=tuple(ReceivedInstance(key=each.digest, digest=each.digest) for each in self.instances))

    @property
    def only_image(self) -> ReadImage:
        (image,) = self.reading().images
        return image


@pytest.fixture
def case(us_header: InstanceHeader, lesion_card: ModelCard, case_id: UUID, tensors: MemoryStore, noon: datetime) -> Case:
    return Case(us_header, lesion_card, case_id, tensors, expires_at=noon + timedelta(minutes=5))


def measured(image: ReadImage, region: int = 0) -> dict[str, float]:
    return {measurement.name: measurement.value for measurement in image.regions[region].measurements}


def picture(image: ReadImage, name: str = "overlay.png") -> npt.NDArray[np.uint8]:
    return np.asarray(Image.open(BytesIO(image.artefacts[name])).convert("RGB"))


def outline_count(image: ReadImage) -> int:
    return int((picture(image) == OUTLINE_RGB).all(axis=-1).sum())


def test_a_finding_lies_where_the_lesion_is_on_the_source_image(case: Case) -> None:
    """given a block outlined on the model's square, then the letterbox is undone and the block is found again"""
    image = case.instance().answered(LESION).only_image
    assert image.status == "findings"
    (region,) = image.regions
    assert region.box == Box(top_px=10, left_px=20, height_px=16, width_px=24)
    assert region.centroid_px == pytest.approx((17.5, 31.5))
    assert measured(image)["area"] == pytest.approx(16 * 24, abs=8)
    assert 0.9 < region.probability <= 1


def test_the_largest_region_comes_first(case: Case) -> None:
    image = case.instance().answered((2, 2, 8, 8), LESION).only_image
    assert [region.box.width_px for region in image.regions] == [24, 8]


def test_specks_under_the_cards_smallest_area_are_no_findings(case: Case) -> None:
    image = case.instance().answered(LESION, (40, 50, 4, 4)).only_image
    assert len(image.regions) == 1


def test_sizes_are_in_millimetres_where_the_header_states_a_spacing(case: Case) -> None:
    image = case.instance(spacing_mm=(0.5, 0.25), spacing_source="ultrasound_region").answered(LESION).only_image
    assert (measured(image)["box_height"], measured(image)["box_width"]) == (8, 6)
    assert {measurement.unit for measurement in image.regions[0].measurements} == {"mm", "mm2", "1"}


@pytest.mark.parametrize(("presence", "status"), [(0.984, "findings"), (0.983, "nothing_found")])
def test_the_presence_score_opens_the_gate(case: Case, presence: float, status: str) -> None:
    """given an outline, then it is a finding from the card's threshold on"""
    assert case.instance().answered(LESION, scores=(0.5, presence)).only_image.status == status


def test_below_the_threshold_the_outline_is_kept_but_neither_judged_nor_drawn(case: Case) -> None:
    image = case.instance().answered(LESION, scores=(0.9, 0.5)).only_image
    assert [region.box for region in image.regions] == [Box(top_px=10, left_px=20, height_px=16, width_px=24)]
    assert not image.is_suspicious
    assert outline_count(image) == 0


def test_presence_without_an_outline_is_not_assessable(case: Case) -> None:
    image = case.instance().answered().only_image
    assert (image.status, image.reason, image.regions) == ("not_assessable", "presence-without-outline", ())


def test_no_presence_and_no_outline_is_nothing_found(case: Case) -> None:
    image = case.instance().answered(scores=(0.5, 0.1)).only_image
    assert (image.status, image.reason, image.regions) == ("nothing_found", None, ())


@pytest.mark.parametrize(("malignancy", "is_suspicious"), [(0.081, True), (0.08, False)])
def test_the_malignancy_score_decides_what_is_suspicious(case: Case, malignancy: float, is_suspicious: bool) -> None:
    assert case.instance().answered(LESION, scores=(malignancy, 1.0)).only_image.is_suspicious is is_suspicious


def test_scores_have_the_cards_names(case: Case) -> None:
    assert case.instance().answered(LESION, scores=(0.25, 1.0)).only_image.scores == {"malignancy": 0.25, "presence": 1.0}


def test_ct_values_are_hounsfield_units(case: Case) -> None:
    """given stored 1064 everywhere, slope 1 and intercept -1024, then the mean is 40 HU"""
    stored = np.full((1, *SHAPE_PX), 1064, dtype=np.int16)
    image = case.instance(stored, modality="CT", bits_stored=12, intercept=-1024.0).answered(LESION).only_image
    mean = image.regions[0].measurements[-1]
    assert (mean.name, mean.value, mean.unit) == ("mean_value", 40, "[hnsf'U]")


def test_colour_is_measured_by_its_luminance(case: Case) -> None:
    """given R 100, G 50, B 200, then 0.299 x 100 + 0.587 x 50 + 0.114 x 200 = 82.05"""
    stored = np.broadcast_to(np.array((100, 50, 200), dtype=np.uint8), (1, *SHAPE_PX, 3))
    image = case.instance(stored, samples_per_pixel=3, photometric_interpretation="RGB").answered(LESION).only_image
    assert measured(image)["mean_value"] == pytest.approx(82.05)
    assert picture(image)[0, 0].tolist() == pytest.approx([82] * 3, abs=1)


def test_each_frame_is_measured_in_its_own_values(case: Case) -> None:
    frames = np.stack([np.full(SHAPE_PX, level, dtype=np.uint8) for level in (10, 200)])
    case.instance(frames, frame_count=2).answered(LESION, frame=2).answered(LESION, frame=1)
    by_frame = {image.image.frame: measured(image)["mean_value"] for image in case.reading().images}
    assert by_frame == {1: 10, 2: 200}


def test_frames_are_read_in_their_order(case: Case) -> None:
    frames = np.zeros((2, *SHAPE_PX), dtype=np.uint8)
    case.instance(frames, frame_count=2).answered(frame=2).answered(LESION, frame=1)
    assert [(image.image.frame, image.status) for image in case.reading().images] == [(1, "findings"), (2, "not_assessable")]


def test_each_image_gets_its_own_row_of_the_answer(case: Case) -> None:
    """given three images, then only the one with the outline has the finding"""
    case.instance().answered(scores=(0.0, 0.1)).instance().answered(LESION).instance().answered(scores=(0.0, 0.2))
    images = case.reading().images
    assert [image.status for image in images] == ["nothing_found", "findings", "nothing_found"]
    assert [image.scores["presence"] for image in images] == [0.1, 0.999, 0.2]


def test_overlays_number_the_findings_as_the_report_does(case: Case) -> None:
    """given the same image twice, then the second overlay shows another number"""
    first, second = case.instance().answered(LESION).instance().answered(LESION).reading().images
    assert first.artefacts["overlay.png"] != second.artefacts["overlay.png"]
    assert first.artefacts["probability.png"] == second.artefacts["probability.png"]


def test_the_overlay_outlines_a_finding(case: Case) -> None:
    assert outline_count(case.instance().answered(LESION).only_image) >= 2 * (16 + 24) - 4


def test_the_overlay_shows_black_where_a_reader_sees_black(case: Case) -> None:
    """given MONOCHROME1, in which high values are dark, then the picture is inverted once"""
    stored = np.full((1, *SHAPE_PX), 255, dtype=np.uint8)
    image = case.instance(stored, photometric_interpretation="MONOCHROME1").answered(LESION).only_image
    assert picture(image)[0, 0].tolist() == [0, 0, 0]


def test_the_probability_picture_has_the_source_geometry(case: Case) -> None:
    probability = picture(case.instance().answered(LESION).only_image, "probability.png")[..., 0]
    assert probability.shape == SHAPE_PX
    assert probability[18, 32] == 255
    assert probability[40, 5] == 0


@pytest.mark.parametrize(("outcome", "reason"), [("not_applicable", "modality-not-covered"), ("not_assessable", "image-without-contrast")])
def test_a_case_without_a_ready_image_needs_no_tensor(case: Case, outcome: ImageOutcome, reason: str) -> None:
    case.instance().turned_away(outcome, reason)
    case.tensors.reclaim(now=case.expires_at)
    image = case.only_image
    assert (image.status, image.reason, image.artefacts) == (outcome, reason, {})


def test_an_instance_that_could_not_be_read_keeps_its_place_and_its_reason(case: Case) -> None:
    images = case.failed("truncated").instance().answered(LESION).reading().images
    assert [(image.status, image.reason) for image in images] == [("unreadable", "truncated"), ("findings", None)]


def test_an_unreadable_instance_with_an_image_of_its_own_is_listed_once(case: Case) -> None:
    case.failed("truncated").turned_away("not_assessable", "truncated")
    assert (case.only_image.status, case.only_image.reason) == ("unreadable", "truncated")


def test_an_instance_without_any_image_is_not_lost(case: Case) -> None:
    image = case.instance().only_image
    assert (image.status, image.reason) == ("not_assessable", "no-image")


def without_prepared(work: CaseWork) -> CaseWork:
    return work.model_copy(update={"prepared": None})


def without_inferred(work: CaseWork) -> CaseWork:
    return work.model_copy(update={"inferred": None})


def of_another_model(work: CaseWork) -> CaseWork:
    assert work.inferred is not None
    return work.model_copy(update={"inferred": work.inferred.model_copy(update={"model": "other:1"})})


def with_a_score_too_many(work: CaseWork) -> CaseWork:
    assert work.inferred is not None
    return work.model_copy(update={"inferred": work.inferred.model_copy(update={"scores": ((0.1, 0.2, 0.3),)})})


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (without_prepared, TensorMissing),
        (without_inferred, TensorMissing),
        (of_another_model, ModelFailed),
        (with_a_score_too_many, ModelFailed),
    ],
)
def test_work_that_does_not_fit_together_is_not_read(case: Case, change: Callable[[CaseWork], CaseWork], error: type[Exception]) -> None:
    work = case.instance().answered(LESION).work()
    with pytest.raises(error):
        case.reading(change(work))


def test_a_tensor_that_expired_sends_the_case_back(case: Case) -> None:
    work = case.instance().answered(LESION).work()
    case.tensors.reclaim(now=case.expires_at)
    with pytest.raises(TensorMissing):
        case.reading(work)


def test_the_tensors_of_another_case_are_never_read(case: Case) -> None:
    work = case.instance().answered(LESION).work()
    case.case_id = UUID("01970000-0000-7000-8000-00000000ffff")
    with pytest.raises(IdentityMismatch):
        case.reading(work)
