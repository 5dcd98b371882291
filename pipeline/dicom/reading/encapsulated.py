"""Compressed pixels: fragments joined to frames, and each frame's own header compared with the data set's."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pipeline.dicom.errors import CorruptPixels, TruncatedPixels, UnsupportedCodec
from pipeline.dicom.reading.elements import bad_value
from pipeline.dicom.reading.layout import PixelLayout
from pipeline.dicom.reading.transfer_syntax import Codestream

_ITEM: Final = b"\xfe\xff\x00\xe0"
_SEQUENCE_END: Final = b"\xfe\xff\xdd\xe0"
_ITEM_HEADER_BYTES: Final = 8
_START_OF: Final[dict[Codestream, bytes]] = {"jpeg": b"\xff\xd8\xff", "jpeg2000": b"\xff\x4f\xff\x51"}
_START_OF_FRAME: Final = frozenset({*range(0xC0, 0xD0), 0xF7}) - {0xC4, 0xC8, 0xCC}
"""SOF markers of JPEG (ISO 10918-1 table B.1) and JPEG-LS (ISO 14495-1)."""
_END_OF_IMAGE: Final = b"\xff\xd9"
_TAIL_BYTES: Final = 4096
_TAIL_AFTER_END_BYTES: Final = 16
"""Zeros, or a few stray bytes of padding, may follow the end mark."""
_START_OF_TILE_PART: Final = b"\xff\x90"
_TILE_PART_HEADER_BYTES: Final = 14
_LONGEST_BOX_BYTES: Final = 4096
"""A bare codestream is what PS3.5 annex A.4.4 asks for; some writers put the boxes of a JP2 file before it."""
_WITHOUT_LENGTH: Final = frozenset({0x01, *range(0xD0, 0xD9)})


@dataclass(frozen=True, slots=True)
class Fragment:
    """One item of encapsulated Pixel Data (PS3.5 annex A.4)."""

    offset: int
    """From the first item after the Basic Offset Table, as that table counts."""
    content: bytes


def split_frames(value: memoryview, *, frame_count: int, codestream: Codestream) -> list[bytes]:
    """Join the fragments to exactly the declared number of frames; none is dropped or made up.

    Raises
    ------
    CorruptPixels
        The items cannot be told apart, or not be assigned to frames.
    TruncatedPixels
        There are fewer frames than declared.
    BadValue
        There are more.
    """
    table, fragments = _fragments(value)
    groups = _grouped(table, fragments, frame_count, codestream)
    if len(groups) < frame_count:
        raise TruncatedPixels(declared_frame_count=frame_count, present_frame_count=len(groups))
    if len(groups) > frame_count:
        raise bad_value("NumberOfFrames", "is below the frames present", declared=frame_count, present=len(groups))
    return [b"".join(fragment.content for fragment in group) for group in groups]


def _fragments(value: memoryview) -> tuple[tuple[int, ...], list[Fragment]]:
    """The offset table and the fragments; the delimiter at the end is what tells that none is missing."""
    items: list[Fragment] = []
    at = first = 0
    while (mark := bytes(value[at : at + 4])) != _SEQUENCE_END:
        length = int.from_bytes(value[at + 4 : at + _ITEM_HEADER_BYTES], "little")
        at += _ITEM_HEADER_BYTES
        if mark != _ITEM or at + length > len(value):
            raise CorruptPixels("the fragments of Pixel Data are damaged or cut off", fragment=len(items))
        items.append(Fragment(at - _ITEM_HEADER_BYTES - first, bytes(value[at : at + length])))
        at += length
        first = first or at
    if not items:
        raise CorruptPixels("Pixel Data does not begin with a fragment")
    table = items[0].content
    return tuple(int.from_bytes(table[i : i + 4], "little") for i in range(0, len(table) // 4 * 4, 4)), items[1:]


def _grouped(table: tuple[int, ...], fragments: list[Fragment], frame_count: int, codestream: Codestream) -> Sequence[list[Fragment]]:
    by_start = _starting_at(fragments, _begins_frame(fragments, codestream))
    if frame_count == 1 and len(by_start) <= 1:
        return [fragments] if fragments else []
    if table and set(table) <= {fragment.offset for fragment in fragments}:
        return _starting_at(fragments, [fragment.offset in table for fragment in fragments])
    return by_start if by_start else [[fragment] for fragment in fragments]


def _begins_frame(fragments: list[Fragment], codestream: Codestream) -> list[bool]:
    mark = _START_OF.get(codestream)
    return [mark is not None and fragment.content.startswith(mark) for fragment in fragments]


def _starting_at(fragments: list[Fragment], begins: list[bool]) -> list[list[Fragment]]:
    groups: list[list[Fragment]] = []
    for fragment, is_first in zip(fragments, begins, strict=True):
        if is_first:
            groups.append([])
        if groups:
            groups[-1].append(fragment)
    return groups


def check_frame(frame: bytes, layout: PixelLayout, codestream: Codestream) -> None:
    """Compare a frame's own size with the header's before a codec allocates by it.

    Raises
    ------
    CorruptPixels
        Another size, or no codestream of this kind.
    UnsupportedCodec
        Lossy JPEG of more than 8 bits.
    """
    if codestream == "rle":
        return
    size_px = _jpeg_size(frame) if codestream == "jpeg" else _jpeg2000_size(frame)
    if size_px is None:
        raise CorruptPixels("a frame is not a codestream of its transfer syntax")
    if size_px != (layout.rows_px, layout.columns_px):
        raise CorruptPixels("a frame has another size than the header states", rows_px=size_px[0], columns_px=size_px[1])
    if codestream == "jpeg" and _END_OF_IMAGE not in frame[-_TAIL_BYTES:].rstrip(b"\0")[-_TAIL_AFTER_END_BYTES:]:
        # Without the mark the JPEG-LS codec searches for seconds, and others fill the rest in silence.
        raise CorruptPixels("a JPEG frame is cut off before its end mark")


def _jpeg_size(frame: bytes) -> tuple[int, int] | None:
    """(rows, columns) of the first frame header; None where there is none."""
    if not frame.startswith(_START_OF["jpeg"]):
        return None
    at = 2
    while at + 9 <= len(frame) and frame[at] == 0xFF:
        marker = frame[at + 1]
        if marker in _START_OF_FRAME:
            if marker in (0xC1, 0xC2) and frame[at + 4] > 8:
                raise UnsupportedCodec(bits=frame[at + 4])
            return int.from_bytes(frame[at + 5 : at + 7], "big"), int.from_bytes(frame[at + 7 : at + 9], "big")
        if marker == 0xFF:  # a fill byte
            at += 1
        else:
            at += 2 if marker in _WITHOUT_LENGTH else 2 + int.from_bytes(frame[at + 2 : at + 4], "big")
    return None


def _jpeg2000_size(frame: bytes) -> tuple[int, int] | None:
    """(rows, columns) from the SIZ marker (ISO 15444-1 A.5.1): extent less offset.

    A codestream whose tile-parts are cut is refused here: the codec would fill the rest in silence.
    """
    start = frame.find(_START_OF["jpeg2000"], 0, _LONGEST_BOX_BYTES)
    if start < 0 or len(frame) < start + 24:
        return None
    _check_tile_parts(frame, start)
    right, bottom, left, top = (int.from_bytes(frame[start + at : start + at + 4], "big") for at in (8, 12, 16, 20))
    return bottom - top, right - left


def _check_tile_parts(frame: bytes, start: int) -> None:
    """Follow the marker segments to the first tile-part, then the tile-parts' lengths (ISO 15444-1 A.4.2)."""
    at = start + 2
    while frame[at : at + 2] != _START_OF_TILE_PART:
        if at + 4 > len(frame):
            raise CorruptPixels("a JPEG 2000 frame has no tile")
        at += 2 + int.from_bytes(frame[at + 2 : at + 4], "big")
    while frame[at : at + 2] == _START_OF_TILE_PART:
        length = int.from_bytes(frame[at + 6 : at + 10], "big")
        if at + length > len(frame):
            raise CorruptPixels("a JPEG 2000 frame is cut off", declared_bytes=at + length, present_bytes=len(frame))
        if length < _TILE_PART_HEADER_BYTES:  # zero: it goes on to the end of the codestream
            return
        at += length
