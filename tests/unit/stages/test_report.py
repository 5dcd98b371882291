"""Wording a case: outcome, sentence, numbers, places and the digest chain."""

from datetime import datetime, timedelta
from hashlib import sha256
from uuid import UUID

import pytest

from pipeline.cases.reading import CaseReading, MeasuredRegion, ReadImage, Revision
from pipeline.stages.report import report
from schemas.instance import InstanceHeader
from schemas.model_card import ModelCard
from schemas.report import Box, ImageStatus, Measurement, Report
from schemas.tensor import TensorHandle
from schemas.work import InferredCase, PreparedCase, PreparedImage, PreparedInstance

DIGESTS = ("1" * 64, "2" * 64, "3" * 64)


def region(long_axis: float = 24, short_axis: float = 15, *, unit: str = "mm", area: float = 280) -> MeasuredRegion:
    return MeasuredRegion(
        box=Box(top_px=4, left_px=5, height_px=15, width_px=24),
        centroid_px=(11.0, 16.5),
        measurements=(
            Measurement(name="area", value=area, unit=f"{unit}2"),
            Measurement(name="long_axis", value=long_axis, unit=unit),
            Measurement(name="short_axis", value=short_axis, unit=unit),
        ),
        probability=0.9,
    )


class Case:
    """Builds readings image by image, each in an instance of its own."""

    def __init__(self, header: InstanceHeader, card: ModelCard, case_id: UUID, noon: datetime) -> None:
        self._header, self._card, self._case_id, self._noon = header, card, case_id, noon
        self._images: list[ReadImage] = []

    def image(self, status: ImageStatus, *regions: MeasuredRegion, **facts: object) -> "Case":
        """One more image; `facts` are fields of the header, `reason`, `is_suspicious` or `artefacts`."""
        ours = {name: facts.pop(name) for name in ("reason", "is_suspicious", "artefacts") if name in facts}
        number = len(self._images)
        header = self._header.model_copy(update={"sop_instance_uid": f"1.2.3.{number}"} | facts)
        prepared = PreparedImage(instance=number, frame=1, outcome="ready", fingerprint="f" * 64)
        instance = PreparedInstance(digest=DIGESTS[number], header=None if status == "unreadable" else header)
        self._images.append(ReadImage(image=prepared, instance=instance, status=status, regions=regions, **ours))  # type: ignore[arg-type]
        return self

    def handle(self, digest: str) -> TensorHandle:
        return TensorHandle(
            store="memory",
            key="0" * 32,
            shape=(1, 1, 64, 64),
            dtype="uint8",
            digest=digest,
            case_id=self._case_id,
            generation=0,
            expires_at=self._noon + timedelta(minutes=1),
        )

    def written(self, *, version: int = 1, is_inferred: bool = False) -> tuple[Report, dict[str, bytes]]:
        reference = self._card.reference
        inferred = InferredCase(
            model=reference,
            weights_digest="b" * 64,
            probability=self.handle("d" * 64),
            scores=((0.5, 1.0),),
            batch_id="batch-7",
            batch_size=4,
            batch_position=2,
            precision="bfloat16",
            fired_because="full",
            device="cpu",
            forward_s=0.02,
        )
        prepared = PreparedCase(
            model=reference,
            instances=tuple(image.instance for image in self._images),
            images=tuple(image.image for image in self._images),
            model_input=self.handle("c" * 64) if is_inferred else None,
        )
        reading = CaseReading(prepared=prepared, inferred=inferred if is_inferred else None, images=tuple(self._images))
        revision = Revision(version=version, kind="final", at=self._noon, product_version="0.1.0")
        return report(reading, case_id=self._case_id, card=self._card, revision=revision)

    @property
    def report(self) -> Report:
        return self.written()[0]


@pytest.fixture
def case(us_header: InstanceHeader, lesion_card: ModelCard, case_id: UUID, noon: datetime) -> Case:
    return Case(us_header, lesion_card, case_id, noon)


@pytest.mark.parametrize(
    ("statuses", "outcome", "is_complete"),
    [
        (["findings"], "findings", True),
        (["nothing_found", "findings"], "findings", True),
        (["not_assessable", "findings"], "findings", False),
        (["nothing_found"], "nothing_found", True),
        (["nothing_found", "unreadable"], "nothing_found", False),
        (["nothing_found", "not_applicable"], "nothing_found", False),
        (["not_assessable"], "not_assessable", False),
        (["unreadable"], "not_assessable", False),
        (["not_applicable", "unreadable"], "not_assessable", False),
        (["not_applicable", "not_applicable"], "not_applicable", False),
        ([], "not_assessable", False),
    ],
)
def test_the_images_decide_the_outcome(case: Case, statuses: list[ImageStatus], outcome: str, is_complete: bool) -> None:
    for status in statuses:
        case.image(status, *([region()] if status == "findings" else []))
    assert (case.report.outcome, case.report.is_complete) == (outcome, is_complete)


def test_the_sentence_counts_findings_and_gives_the_largest(case: Case) -> None:
    case.image("findings", region(24.2, 15.4), region(8, 6, area=38), is_suspicious=True)
    assert case.report.summary == "2 findings in 1 of 1 images; largest 24 x 15 mm, suspicious."


def test_a_finding_under_ten_is_given_to_a_tenth(case: Case) -> None:
    case.image("findings", region(9.94, 4.26)).image("nothing_found")
    assert case.report.summary == "1 finding in 1 of 2 images; largest 9.9 x 4.3 mm."


def test_the_sentence_says_pixels_where_there_is_no_spacing(case: Case) -> None:
    case.image("findings", region(240, 150, unit="px"))
    assert case.report.summary == "1 finding in 1 of 1 images; largest 240 x 150 px."


def test_a_suspicious_smaller_finding_is_not_passed_over(case: Case) -> None:
    case.image("findings", region()).image("findings", region(8, 6, area=38), is_suspicious=True)
    assert case.report.summary == "2 findings in 2 of 2 images; largest 24 x 15 mm; a smaller one suspicious."


def test_a_size_in_millimetres_goes_before_one_in_pixels(case: Case) -> None:
    """given more pixels than square millimetres, then the two are not compared as numbers"""
    case.image("findings", region(240, 150, unit="px", area=28000)).image("findings", region())
    assert "largest 24 x 15 mm" in case.report.summary


def test_the_sentence_says_what_was_not_read(case: Case) -> None:
    case.image("findings", region()).image("unreadable", reason="truncated").image("nothing_found")
    assert case.report.summary == "1 finding in 1 of 3 images; largest 24 x 15 mm; 1 image not read."


def test_nothing_found_counts_the_images_that_were_read(case: Case) -> None:
    assert case.image("nothing_found").report.summary == "Nothing found in 1 image."
    assert case.image("unreadable").report.summary == "Nothing found in 1 of 2 images; 1 image not read."


@pytest.mark.parametrize(
    ("facts", "summary"),
    [
        ({"reason": "modality-not-covered", "modality": "CT"}, "No model for this modality (CT): not applicable."),
        ({"reason": "body-part-not-covered", "body_part": "CHEST"}, "No model for this body part (CHEST): not applicable."),
        ({"reason": "too-many-frames"}, "No model for these images (too-many-frames): not applicable."),
    ],
)
def test_not_applicable_says_why(case: Case, facts: dict[str, str], summary: str) -> None:
    assert case.image("not_applicable", **facts).report.summary == summary


def test_not_assessable_says_why(case: Case) -> None:
    case.image("not_assessable", reason="presence-without-outline").image("unreadable", reason="truncated")
    assert case.report.summary == "Not assessable: presence-without-outline, truncated."


def test_findings_are_numbered_through_the_report(case: Case) -> None:
    case.image("findings", region(), region()).image("nothing_found", region()).image("findings", region())
    numbers = [[finding.number for finding in image.findings] for image in case.report.images]
    assert numbers == [[1, 2], [], [3]]


def test_a_finding_keeps_its_tracking_uid_from_version_to_version(case: Case) -> None:
    case.image("findings", region(), region()).image("findings", region())
    uids = [[finding.tracking_uid for image in case.written(version=version)[0].images for finding in image.findings] for version in (1, 2)]
    assert uids[0] == uids[1]
    assert len(set(uids[0])) == 3


def test_a_finding_carries_the_headers_laterality_and_the_cards_codes(case: Case, lesion_card: ModelCard) -> None:
    (finding,) = case.image("findings", region(), laterality="R").report.images[0].findings
    assert finding.laterality == "R"
    assert (finding.concept, finding.category, finding.site) == (
        lesion_card.codes.finding,
        lesion_card.codes.category,
        lesion_card.codes.site,
    )


def test_a_region_below_the_presence_threshold_is_a_box_and_no_finding(case: Case) -> None:
    (image,) = case.image("nothing_found", region()).report.images
    assert image.findings == ()
    assert image.below_threshold == (region().box,)


@pytest.mark.parametrize(("spacing_mm", "unit"), [(None, "px"), ((0.1, 0.2), "mm")])
def test_the_result_says_its_unit_of_length(case: Case, spacing_mm: tuple[float, float] | None, unit: str) -> None:
    (image,) = case.image("nothing_found", spacing_mm=spacing_mm).report.images
    assert (image.length_unit, image.spacing_mm) == (unit, spacing_mm)


def test_an_unreadable_instance_has_a_digest_and_no_header(case: Case) -> None:
    (image,) = case.image("unreadable", reason="truncated").report.images
    assert (image.sop_instance_uid, image.length_unit, image.reason, image.digest) == (None, None, "truncated", DIGESTS[0])


def test_the_study_is_known_although_the_first_instance_is_unreadable(case: Case) -> None:
    assert case.image("unreadable").image("nothing_found").report.study_instance_uid == "1.2.3"


def test_the_chain_starts_from_the_received_digests_in_order(case: Case) -> None:
    case.image("nothing_found").image("unreadable")
    assert case.report.input_digest == sha256(b"1" * 64 + b"2" * 64).hexdigest()


def test_the_chain_names_model_input_and_output(case: Case) -> None:
    written, _ = case.image("nothing_found").written(is_inferred=True)
    assert (written.model_input_digest, written.model_output_digest) == ("c" * 64, "d" * 64)


def test_the_weights_that_ran_are_named(case: Case) -> None:
    written, _ = case.image("nothing_found").written(is_inferred=True)
    assert written.algorithm
    assert written.algorithm.weights_sha256 == "b" * 64
    assert written.batch is not None
    assert (written.batch.batch_id, written.batch.size, written.batch.position) == ("batch-7", 4, 2)
    assert written.batch.precision == "bfloat16"


def test_a_case_without_inference_names_the_cards_weights(case: Case, lesion_card: ModelCard) -> None:
    written = case.image("not_applicable").report
    assert written.algorithm
    assert written.algorithm.weights_sha256 == lesion_card.weights_sha256
    assert (written.batch, written.model_input_digest, written.model_output_digest) == (None, None, None)


def test_artefacts_are_named_by_their_image_and_bound_by_their_digest(case: Case) -> None:
    case.image("not_applicable").image("findings", region(), artefacts={"overlay.png": b"drawn", "probability.png": b"map"})
    written, artefacts = case.written()
    assert artefacts == {"image-2/overlay.png": b"drawn", "image-2/probability.png": b"map"}
    assert written.images[0].artefacts == {}
    assert written.images[1].artefacts == {name: sha256(content).hexdigest() for name, content in artefacts.items()}


def test_a_machine_result_is_never_verified(case: Case) -> None:
    assert case.image("nothing_found").report.verification == "unverified"
