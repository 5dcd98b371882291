"""From the bytes of one file to its data set, up to but without the pixels."""

import zlib
from dataclasses import dataclass
from io import BytesIO
from typing import Final

from pydicom.dataset import Dataset
from pydicom.filereader import read_dataset
from pydicom.uid import UID

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
from pipeline.dicom.reading.elements import Elements, is_uid
from pipeline.dicom.reading.transfer_syntax import TRANSFER_SYNTAXES, TransferSyntax
from pipeline.dicom.reading.verdict import foreign_errors_as
from pipeline.errors import RejectedInput

PREFIX_AT: Final = 128
PREFIX: Final = b"DICM"
UNDEFINED_LENGTH: Final = 0xFFFFFFFF
PIXEL_DATA: Final = 0x7FE00010
_PIXEL_TAGS: Final = (0x7FE00008, 0x7FE00009, PIXEL_DATA)
"""Float, Double Float and integer Pixel Data: whatever comes first ends the header."""
_INFLATE_STEP_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class PixelElement:
    """Where the pixels lie."""

    tag: int
    vr: str | None
    length: int
    """As declared; UNDEFINED_LENGTH where fragments follow."""
    offset: int
    """Of the value, in the (inflated) bytes."""


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """A file whose header is understood and whose pixels are untouched."""

    meta: Elements
    """The file meta group."""
    elements: Elements
    syntax: TransferSyntax
    content: bytes
    """What `PixelElement.offset` counts in: the file, or the inflated data set."""
    pixels: PixelElement | None


def open_file(data: bytes, *, inflate_budget_bytes: int) -> OpenedFile:
    """Read the file meta group and the data set, and find the pixels.

    Raises
    ------
    EmptyFile, NotDicom, MissingFileMeta, EmptyDataset, Truncated, CorruptHeader, NotAnImage
        There is no data set to go on with.
    UnsupportedTransferSyntax
        The file states an encoding outside our table.
    TooLarge
        A deflated data set is larger than the budget. Memory never grows beyond that.
    """
    if not data:
        raise EmptyFile
    if data[PREFIX_AT : PREFIX_AT + len(PREFIX)] != PREFIX:
        raise _without_prefix(data)
    meta, start = _read_meta(data)
    syntax = _transfer_syntax(meta)
    content = data
    if syntax.is_deflated:
        content, start = _inflate(data, start, budget_bytes=inflate_budget_bytes), 0
    dataset, pixels = _read_elements(content, start, syntax)
    if not len(dataset) and pixels is None:
        raise EmptyDataset
    elements = Elements(dataset, is_little_endian=syntax.is_little_endian)
    if pixels is None:
        _refuse_without_pixels(elements, content)
    return OpenedFile(meta, elements, syntax, content, pixels)


def is_image_class(sop_class_uid: str | None) -> bool:
    """Whether the standard's name of a SOP class says that it stores images."""
    return sop_class_uid is not None and "Image Storage" in UID(sop_class_uid).name


def _refuse_without_pixels(elements: Elements, content: bytes) -> None:
    """Refuse what is no image, and what ends early; leave the image without pixels to the header's reader."""
    if not elements.has("Rows") and not is_image_class(elements.uid("SOPClassUID")):
        if elements.has("SOPClassUID") or not _ends_early(elements.dataset, len(content)):
            raise NotAnImage
        raise Truncated
    if _ends_early(elements.dataset, len(content)):
        raise Truncated


def _ends_early(dataset: Dataset, size_bytes: int) -> bool:
    ends = [_value_end(element) for element in dataset._dict.values()]
    return max(ends, default=0) > size_bytes


def _value_end(element: object) -> int:
    """Where the value of an element that lies in the file ends; 0 where its length is not stated."""
    length, start = getattr(element, "length", None), getattr(element, "value_tell", None)
    return start + length if isinstance(length, int) and isinstance(start, int) and length != UNDEFINED_LENGTH else 0


def _read_meta(data: bytes) -> tuple[Elements, int]:
    """The file meta group (PS3.10 section 7.1), and where the data set begins. Its stated length is not trusted."""
    stream = BytesIO(data)
    stream.seek(PREFIX_AT + len(PREFIX))
    with foreign_errors_as(CorruptHeader, "the file meta group cannot be read"):
        meta = read_dataset(stream, is_implicit_VR=False, is_little_endian=True, stop_when=lambda tag, vr, length: tag >> 16 != 2)
    end = stream.tell()
    if len(meta) and (end >= len(data) or _ends_early(meta, len(data))):
        raise Truncated("the file ends inside or right after its file meta group")
    if not len(meta) and len(data) <= PREFIX_AT + len(PREFIX):
        raise EmptyDataset
    return Elements(meta, is_little_endian=True), end


def _transfer_syntax(meta: Elements) -> TransferSyntax:
    uid = meta.uid("TransferSyntaxUID")
    if uid is None:
        raise CorruptHeader("the file meta group states no transfer syntax")
    syntax = TRANSFER_SYNTAXES.get(uid)
    if syntax is None:
        raise UnsupportedTransferSyntax(transfer_syntax_uid=uid)
    return syntax


def _inflate(data: bytes, start: int, *, budget_bytes: int) -> bytes:
    """Inflate a deflated data set (PS3.5 annex A.5) step by step, so that a bomb stops at the budget."""
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    inflated = bytearray()
    waiting: bytes = data[start:]
    with foreign_errors_as(CorruptHeader, "the deflated data set cannot be inflated"):
        while waiting and not inflater.eof:
            inflated += inflater.decompress(waiting, _INFLATE_STEP_BYTES)
            if len(inflated) > budget_bytes:
                raise TooLarge("the data set inflates beyond the limit", limit="inflate_budget_bytes", limit_bytes=budget_bytes)
            waiting = inflater.unconsumed_tail
    if not inflater.eof:
        raise Truncated("the deflated data set ends early")
    return bytes(inflated)


def _read_elements(content: bytes, start: int, syntax: TransferSyntax) -> tuple[Dataset, PixelElement | None]:
    stream = BytesIO(content)
    stream.seek(start)
    found: list[PixelElement] = []

    def at_pixels(tag: int, vr: str | None, length: int) -> bool:
        if tag not in _PIXEL_TAGS:
            return False
        found.append(PixelElement(int(tag), vr, length, stream.tell()))
        return True

    with foreign_errors_as(CorruptHeader, "the data set cannot be read"):
        dataset = read_dataset(stream, syntax.is_implicit_vr, syntax.is_little_endian, stop_when=at_pixels)
    return dataset, found[-1] if found else None


def _without_prefix(data: bytes) -> RejectedInput:
    """Tell a bare data set from something that is not DICOM at all."""
    if data[:2] not in (b"\x08\x00", b"\x02\x00"):
        return NotDicom()
    is_explicit = data[4:6].isalpha() and data[4:6].isupper()
    syntax = TRANSFER_SYNTAXES["1.2.840.10008.1.2.1" if is_explicit else "1.2.840.10008.1.2"]
    try:
        dataset, pixels = _read_elements(data, 0, syntax)
        sop_class_uid = Elements(dataset, is_little_endian=True).uid("SOPClassUID")
    except RejectedInput:
        return NotDicom()
    if sop_class_uid is None or not is_uid(sop_class_uid):
        return NotDicom()
    return MissingFileMeta() if pixels or is_image_class(sop_class_uid) else NotAnImage()
