import struct
import zlib
from collections.abc import Callable

import pytest

from pipeline.dicom.errors import (
    CorruptHeader,
    EmptyDataset,
    EmptyFile,
    MissingFileMeta,
    NotAnImage,
    NotDicom,
    TooLarge,
    Truncated,
    UnsupportedTransferSyntax,
)
from pipeline.dicom.instance import DecodedInstance, DecodeLimits
from pipeline.dicom.reading.instance import read_instance

Compose = Callable[..., bytes]
Read = Callable[[bytes], DecodedInstance]
DEFLATED = "1.2.840.10008.1.2.1.99"
PREAMBLE = b"\0" * 128 + b"DICM"


def deflate(file: bytes, *, meta_bytes: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return file[:meta_bytes] + packer.compress(file[meta_bytes:]) + packer.flush()


def meta_bytes_of(syntax: str) -> int:
    return len(PREAMBLE) + 8 + len(syntax) + len(syntax) % 2


def test_no_bytes_are_an_empty_file(read: Read) -> None:
    with pytest.raises(EmptyFile):
        read(b"")


@pytest.mark.parametrize(
    "data", [b"x", b"<html>sign in</html>", b"\x89PNG\r\n\x1a\n" + bytes(300), b"PK\x03\x04" + bytes(300), bytes(4096)]
)
def test_other_kinds_of_files_are_not_dicom(read: Read, data: bytes) -> None:
    with pytest.raises(NotDicom):
        read(data)


def test_a_prefix_with_nothing_behind_it_is_an_empty_data_set(read: Read) -> None:
    with pytest.raises(EmptyDataset):
        read(PREAMBLE)


def test_an_image_without_file_meta_is_refused_rather_than_guessed_at(read: Read, compose: Compose) -> None:
    bare = compose()[meta_bytes_of("1.2.840.10008.1.2.1") :]
    with pytest.raises(MissingFileMeta):
        read(bare)


def test_a_report_without_pixels_is_not_an_image(read: Read, compose: Compose) -> None:
    absent = ("Rows", "Columns", "PixelData", "BitsAllocated", "BitsStored", "HighBit")
    report = compose(SOPClassUID=b"1.2.840.10008.5.1.4.1.1.88.33", **dict.fromkeys(absent))
    with pytest.raises(NotAnImage):
        read(report)


def test_a_file_cut_inside_its_header_is_truncated(read: Read, compose: Compose) -> None:
    whole = compose()
    with pytest.raises(Truncated):
        read(whole[: whole.index(b"MONOCHROME2") + 3])


def test_a_file_cut_inside_its_meta_group_is_truncated(read: Read, compose: Compose) -> None:
    with pytest.raises(Truncated):
        read(compose()[: len(PREAMBLE) + 12])


@pytest.mark.parametrize("syntax", ["1.2.840.10008.1.2.4.102", "1.2.3.4", "1.2.840.10008.1.2.4.55"])
def test_a_transfer_syntax_outside_the_table_is_named_in_the_refusal(read: Read, compose: Compose, syntax: str) -> None:
    with pytest.raises(UnsupportedTransferSyntax) as refusal:
        read(compose(syntax=syntax))
    assert refusal.value.facts == {"transfer_syntax_uid": syntax}


def test_a_deflated_data_set_reads_like_the_plain_one(read: Read, compose: Compose) -> None:
    plain = read(compose())
    packed = read(deflate(compose(syntax=DEFLATED), meta_bytes=meta_bytes_of(DEFLATED)))
    assert packed.stored.tobytes() == plain.stored.tobytes()


def test_a_deflated_data_set_is_refused_once_it_passes_the_budget(compose: Compose) -> None:
    bomb = deflate(compose(syntax=DEFLATED, PixelData=("OB", bytes(5_000_000))), meta_bytes=meta_bytes_of(DEFLATED))
    assert len(bomb) < 10_000
    with pytest.raises(TooLarge) as refusal:
        read_instance(bomb, limits=DecodeLimits(inflate_budget_bytes=2_000_000))
    assert refusal.value.facts["limit"] == "inflate_budget_bytes"


def test_a_deflated_data_set_that_ends_early_is_truncated(read: Read, compose: Compose) -> None:
    whole = deflate(compose(syntax=DEFLATED), meta_bytes=meta_bytes_of(DEFLATED))
    with pytest.raises(Truncated):
        read(whole[:-10])


def test_sequences_nested_five_thousand_deep_are_a_corrupt_header(read: Read, compose: Compose) -> None:
    opened = struct.pack("<HH2sHI", 0x0008, 0x1140, b"SQ", 0, 0xFFFFFFFF) + b"\xfe\xff\x00\xe0\xff\xff\xff\xff"
    meta_bytes = meta_bytes_of("1.2.840.10008.1.2.1")
    whole = compose()
    with pytest.raises(CorruptHeader):
        read(whole[:meta_bytes] + opened * 5000 + whole[meta_bytes:])
