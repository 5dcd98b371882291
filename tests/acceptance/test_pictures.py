"""The pictures of a result: what they show, and that they are the result's own."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
import pydicom
import pytest
from PIL import Image
from pydicom.data import get_testdata_file

from pipeline.persistence.uploads import pictures_key
from schemas.identifiers import parse_public_id
from tests.acceptance.running import Deployment, Door

pytestmark = pytest.mark.services


@pytest.fixture
def ct_image() -> bytes:
    """A real CT that comes with pydicom: no model is made for it."""
    path = get_testdata_file("CT_small.dcm")
    assert isinstance(path, str)
    return Path(path).read_bytes()


def test_the_overlay_is_a_picture_of_the_image_with_something_drawn_on_it(door: Door, studies: Sequence[bytes]) -> None:
    case_id = door.answered(studies[0])["case_id"]

    overlay = door.http.get(f"/v1/cases/{case_id}/overlay.png")

    assert overlay.headers["Content-Type"] == "image/png"
    with Image.open(BytesIO(overlay.content), formats=["PNG"]) as picture:
        drawn = np.asarray(picture.convert("RGB")).astype(int)
    image = pydicom.dcmread(BytesIO(studies[0])).pixel_array
    assert drawn.shape[0] >= image.shape[0]
    assert drawn.shape[1] >= image.shape[1]
    assert np.ptp(drawn, axis=2).max() > 50  # the outline has a colour, the image has none


@pytest.mark.parametrize("picture", ["overlay.png", "probability.png"])
def test_an_image_that_no_model_read_has_no_picture(door: Door, ct_image: bytes, picture: str) -> None:
    case = door.answered(ct_image)
    assert case["result"]["outcome"] == "not_applicable"
    assert case["result"]["summary"] == "No model for this modality (CT): not applicable."

    missing = door.http.get(f"/v1/cases/{case['case_id']}/{picture}")

    assert (missing.status_code, missing.json()["code"]) == (404, "not-found")


def test_every_image_of_a_case_has_its_own_picture(door: Door, studies: Sequence[bytes]) -> None:
    one_study = [pydicom.dcmread(BytesIO(study)) for study in studies[:2]]
    one_study[1].StudyInstanceUID = one_study[0].StudyInstanceUID
    case = door.answered(*(_written(dataset) for dataset in one_study))

    pictures = [door.http.get(f"/v1/cases/{case['case_id']}/overlay.png", params={"image": number}) for number in (1, 2, 3)]

    assert [picture.status_code for picture in pictures] == [200, 200, 404]
    assert pictures[0].content != pictures[1].content


def _written(dataset: pydicom.FileDataset) -> bytes:
    content = BytesIO()
    dataset.save_as(content)
    return content.getvalue()


def _archive(deployment: Deployment, case_id: str) -> Path:
    known = parse_public_id("case", case_id)
    assert known is not None
    return next((deployment.state_dir / "uploads").glob(pictures_key(known, 0).replace("-0.", "-*.")))


def test_the_picture_of_another_case_is_not_served(deployment: Deployment, studies: Sequence[bytes]) -> None:
    mine, other = (deployment.door.answered(study)["case_id"] for study in studies[:2])
    archive = _archive(deployment, mine)
    own = archive.read_bytes()

    archive.write_bytes(_archive(deployment, other).read_bytes())
    refused = deployment.door.http.get(f"/v1/cases/{mine}/overlay.png")
    archive.write_bytes(own)

    assert (refused.status_code, refused.json()["code"], refused.json()["case_id"]) == (500, "picture-damaged", mine)
    assert deployment.door.http.get(f"/v1/cases/{mine}/overlay.png").status_code == 200


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_damaged_picture_is_not_served(deployment: Deployment, studies: Sequence[bytes], damage: str) -> None:
    case_id = deployment.door.answered(studies[0])["case_id"]
    archive = _archive(deployment, case_id)
    content = bytearray(archive.read_bytes())
    content[len(content) // 3] ^= 1

    archive.write_bytes(content if damage == "changed" else content[: len(content) // 2])

    assert deployment.door.http.get(f"/v1/cases/{case_id}/overlay.png").json()["code"] == "picture-damaged"
