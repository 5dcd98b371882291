from collections.abc import Callable
from typing import Any

import pytest

from pipeline.dicom.errors import BadUid, BadValue, MissingTag
from pipeline.dicom.instance import DecodedInstance

Compose = Callable[..., bytes]
Read = Callable[[bytes], DecodedInstance]
Sequence = Callable[[list[dict[str, Any]]], tuple[str, bytes]]
CAPTURE = b"1.2.840.10008.5.1.4.1.1.7"


def test_the_header_tells_what_the_file_states(read: Read, compose: Compose) -> None:
    header = read(compose(Laterality=b"L")).header
    assert (header.modality, header.body_part, header.laterality) == ("US", "BREAST", "L")
    assert (header.rows_px, header.columns_px, header.frame_count) == (4, 3, 1)
    assert header.image_type == ("ORIGINAL", "PRIMARY")
    assert header.warnings == ()


@pytest.mark.parametrize("keyword", ["SOPClassUID", "SOPInstanceUID", "StudyInstanceUID", "SeriesInstanceUID", "Modality"])
def test_what_names_an_instance_must_be_there(read: Read, compose: Compose, keyword: str) -> None:
    with pytest.raises(MissingTag) as refusal:
        read(compose(**{keyword: None}))
    assert refusal.value.facts["name"] == keyword


def test_a_converted_picture_without_a_series_gets_stand_ins_and_a_warning(read: Read, compose: Compose) -> None:
    bare = compose(SOPClassUID=CAPTURE, StudyInstanceUID=None, SeriesInstanceUID=None, Modality=None)
    header = read(bare).header
    assert header.modality == "OT"
    assert header.study_instance_uid.startswith("2.25.")
    assert header.study_instance_uid != header.series_instance_uid
    assert header.warnings == ("identity-incomplete",)


@pytest.mark.parametrize("uid", [b"../../etc/passwd", b"1.2.3\nDROP", b"1." + b"2" * 63, b"1..2", b"abc"])
def test_a_uid_that_is_none_is_refused_and_not_repeated(read: Read, compose: Compose, uid: bytes) -> None:
    with pytest.raises(BadUid) as refusal:
        read(compose(SOPInstanceUID=uid))
    assert uid.decode() not in f"{refusal.value} {refusal.value.facts}"


def test_a_missing_patient_id_is_accepted_with_a_warning(read: Read, compose: Compose) -> None:
    assert read(compose(PatientID=None)).header.warnings == ("patient-id-missing",)


@pytest.mark.parametrize("slope", [b"0", b"abc", b"NaN", b"1,5", b"1\\2"])
def test_a_rescale_that_cannot_be_trusted_is_refused(read: Read, compose: Compose, slope: bytes) -> None:
    with pytest.raises(BadValue) as refusal:
        read(compose(RescaleSlope=slope, RescaleIntercept=b"0"))
    assert refusal.value.facts["name"] == "RescaleSlope"


def test_an_empty_slope_counts_as_one_and_is_warned_of(read: Read, compose: Compose) -> None:
    header = read(compose(RescaleSlope=b"", RescaleIntercept=b"-1024")).header
    assert (header.slope, header.intercept) == (1.0, -1024.0)
    assert header.warnings == ("rescale-empty",)


@pytest.mark.parametrize(
    ("centers", "widths", "expected"),
    [
        (b"40", b"400", (40.0, 400.0)),
        (b"40\\300", b"400\\1500", (40.0, 400.0)),
        (b"1\\2", b"0\\20", (2.0, 20.0)),
    ],
)
def test_the_first_usable_window_is_taken(
    read: Read, compose: Compose, centers: bytes, widths: bytes, expected: tuple[float, float]
) -> None:
    header = read(compose(WindowCenter=centers, WindowWidth=widths)).header
    assert (header.window_center, header.window_width) == expected


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({"WindowCenter": b"40", "WindowWidth": b"0"}, "window-unusable"),
        ({"WindowCenter": b"40", "WindowWidth": b"wide"}, "window-unreadable"),
        ({"WindowCenter": b"40", "WindowWidth": b"400", "VOILUTFunction": b"SIGMOID"}, "window-function-not-applied"),
    ],
)
def test_a_window_that_cannot_be_used_is_left_out_with_a_warning(
    read: Read, compose: Compose, changes: dict[str, bytes], warning: str
) -> None:
    header = read(compose(**changes)).header
    assert header.window_width is None
    assert warning in header.warnings


def test_numbers_that_all_frames_share_come_from_the_functional_groups(read: Read, compose: Compose, sequence: Sequence) -> None:
    window = sequence([{"WindowCenter": b"40", "WindowWidth": b"400"}])
    rescale = sequence([{"RescaleSlope": b"2", "RescaleIntercept": b"-10"}])
    frames = [{"FrameVOILUTSequence": window} for _ in range(2)]
    shared = [{"PixelValueTransformationSequence": rescale}]
    header = read(
        compose(
            NumberOfFrames=b"2",
            PixelData=("OB", bytes(24)),
            SharedFunctionalGroupsSequence=sequence(shared),
            PerFrameFunctionalGroupsSequence=sequence(frames),
        )
    ).header
    assert (header.slope, header.intercept, header.window_center, header.window_width) == (2.0, -10.0, 40.0, 400.0)


def test_frames_with_different_rescales_leave_the_values_as_stored(read: Read, compose: Compose, sequence: Sequence) -> None:
    frames = [
        {"PixelValueTransformationSequence": sequence([{"RescaleSlope": slope, "RescaleIntercept": b"-10"}])} for slope in (b"1", b"2")
    ]
    changes = {"NumberOfFrames": b"2", "PixelData": ("OB", bytes(24)), "PerFrameFunctionalGroupsSequence": sequence(frames)}
    header = read(compose(**changes)).header
    assert (header.slope, header.intercept) == (1.0, 0.0)
    assert header.warnings == ("rescale-differs-by-frame",)


def test_a_modality_table_is_named_as_not_applied(read: Read, compose: Compose, sequence: Sequence) -> None:
    header = read(compose(ModalityLUTSequence=sequence([{"ModalityLUTType": b"US"}]))).header
    assert header.warnings == ("modality-lut-not-applied",)


def test_patient_names_never_reach_the_header(read: Read, compose: Compose) -> None:
    header = read(compose(PatientName=b"Fictitious^Name" * 1000)).header
    assert "Fictitious" not in header.model_dump_json()


def test_a_body_part_that_is_no_code_is_left_out_with_a_warning(read: Read, compose: Compose) -> None:
    header = read(compose(BodyPartExamined=b"<script>alert(1)</script>")).header
    assert header.body_part is None
    assert header.warnings == ("body-part-unreadable",)
