"""The archive of a reading's pictures."""

import pytest

from pipeline.errors import IdentityMismatch, UploadMissing
from pipeline.persistence.pictures import pack, picture_of

PICTURES = {"image-1/overlay.png": b"\x89PNG 1", "image-1/probability.png": b"", "image-12/overlay.png": bytes(range(256)) * 300}


def test_each_picture_comes_back_under_its_name() -> None:
    archive = pack(PICTURES)

    assert {name: picture_of(archive, name) for name in PICTURES} == PICTURES


def test_the_same_pictures_give_the_same_bytes() -> None:
    assert pack(PICTURES) == pack(dict(PICTURES))


@pytest.mark.parametrize("name", ["image-2/overlay.png", "overlay.png", "", "../image-1/overlay.png"])
def test_a_name_that_is_not_in_it_is_missing(name: str) -> None:
    with pytest.raises(UploadMissing):
        picture_of(pack(PICTURES), name)


@pytest.mark.parametrize("cut_to", [0, 1, 40, -1, -30])
def test_an_archive_that_was_cut_is_no_picture(cut_to: int) -> None:
    with pytest.raises(IdentityMismatch):
        picture_of(pack(PICTURES)[:cut_to], "image-12/overlay.png")


def test_a_picture_with_another_byte_is_not_taken_for_it() -> None:
    archive = bytearray(pack(PICTURES))
    archive[archive.index(b"\x89PNG 1")] ^= 1

    with pytest.raises(IdentityMismatch):
        picture_of(bytes(archive), "image-1/overlay.png")


def test_pictures_lie_in_it_as_they_are() -> None:
    assert all(content in pack(PICTURES) for content in PICTURES.values())
