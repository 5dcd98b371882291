from collections.abc import Callable
from io import BytesIO

import numpy as np
import pydicom
import pytest

from pipeline.dicom.instance import DecodedInstance
from pipeline.dicom.phantom import PhantomStudy, phantom_instance

Read = Callable[[bytes], DecodedInstance]
IMAGE = np.random.default_rng(3).integers(0, 256, (33, 21)).astype(np.uint8)


def test_a_phantom_is_an_ultrasound_image_that_pydicom_reads_bit_for_bit() -> None:
    theirs = pydicom.dcmread(BytesIO(phantom_instance(IMAGE)))
    np.testing.assert_array_equal(theirs.pixel_array, IMAGE)
    assert theirs.SOPClassUID.name == "Ultrasound Image Storage"
    assert (theirs.Modality, theirs.BodyPartExamined) == ("US", "BREAST")


def test_our_reader_finds_the_scale_of_the_region(read: Read) -> None:
    header = read(phantom_instance(IMAGE, PhantomStudy(spacing_mm=(0.2, 0.15)))).header
    assert header.spacing_mm == pytest.approx((0.2, 0.15))
    assert header.spacing_source == "ultrasound_region"
    assert header.warnings == ()


@pytest.mark.parametrize(
    ("study", "source"),
    [
        (PhantomStudy(has_pixel_spacing=True), "pixel_spacing"),
        (PhantomStudy(spacing_mm=None), None),
    ],
)
def test_the_scale_is_stated_as_asked(read: Read, study: PhantomStudy, source: str | None) -> None:
    assert read(phantom_instance(IMAGE, study)).header.spacing_source == source


def test_an_inverted_phantom_is_the_same_picture_in_monochrome1(read: Read) -> None:
    decoded = read(phantom_instance(IMAGE, PhantomStudy(is_inverted=True)))
    np.testing.assert_array_equal(decoded.stored[0], 255 - IMAGE)
    assert decoded.header.photometric_interpretation == "MONOCHROME1"


def test_the_same_study_written_twice_gives_the_same_bytes() -> None:
    assert phantom_instance(IMAGE) == phantom_instance(IMAGE)


def test_instances_of_one_study_share_it_and_differ_in_their_own_uid(read: Read) -> None:
    first, second = (read(phantom_instance(IMAGE, PhantomStudy(instance_number=number))).header for number in (1, 2))
    assert first.study_instance_uid == second.study_instance_uid
    assert first.sop_instance_uid != second.sop_instance_uid
