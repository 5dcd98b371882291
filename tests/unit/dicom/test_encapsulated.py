import struct
from collections.abc import Callable
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from pipeline.dicom.errors import BadValue, CorruptPixels, TruncatedPixels, UnsupportedCodec
from pipeline.dicom.instance import DecodedInstance

Compose = Callable[..., bytes]
Read = Callable[[bytes], DecodedInstance]
JPEG_BASELINE, JPEG_EXTENDED = "1.2.840.10008.1.2.4.50", "1.2.840.10008.1.2.4.51"
GREYS = (40, 100, 160, 220)
UNDEFINED = 0xFFFFFFFF
END = b"\xfe\xff\xdd\xe0\0\0\0\0"


def us(value: int) -> bytes:
    return struct.pack("<H", value)


def jpeg(grey: int, *, side_px: int = 16) -> bytes:
    """A flat JPEG: its one grey level survives the compression."""
    written = BytesIO()
    Image.new("L", (side_px, side_px), grey).save(written, "JPEG", quality=95)
    content = written.getvalue()
    return content + b"\0" * (len(content) % 2)


def item(content: bytes) -> bytes:
    return b"\xfe\xff\x00\xe0" + struct.pack("<I", len(content)) + content


def cut(content: bytes, pieces: int) -> list[bytes]:
    step = len(content) // pieces // 2 * 2
    return [content[at * step : (at + 1) * step if at < pieces - 1 else None] for at in range(pieces)]


def encapsulated(frames: list[bytes], *, pieces: int, has_table: bool) -> bytes:
    offsets, fragments = [], b""
    for frame in frames:
        offsets.append(len(fragments))
        fragments += b"".join(item(piece) for piece in cut(frame, pieces))
    table = b"".join(struct.pack("<I", offset) for offset in offsets) if has_table else b""
    return item(table) + fragments + END


@pytest.fixture
def write(compose: Compose) -> Callable[..., bytes]:
    def of(pixels: bytes, *, frame_count: int = len(GREYS), syntax: str = JPEG_BASELINE) -> bytes:
        return compose(
            syntax=syntax,
            pixel_length=UNDEFINED,
            Rows=us(16),
            Columns=us(16),
            NumberOfFrames=str(frame_count).encode(),
            PixelData=("OB", pixels),
        )

    return of


FRAMES = [jpeg(grey) for grey in GREYS]


@pytest.mark.parametrize("pieces", [1, 2, 3])
@pytest.mark.parametrize("has_table", [True, False])
def test_frames_come_out_complete_and_in_order_however_they_are_cut(
    read: Read, write: Callable[..., bytes], pieces: int, has_table: bool
) -> None:
    stored = read(write(encapsulated(FRAMES, pieces=pieces, has_table=has_table))).stored
    np.testing.assert_allclose(stored[:, 0, 0], GREYS, atol=2)
    assert stored.shape == (4, 16, 16)


def test_one_frame_may_lie_in_many_fragments(read: Read, write: Callable[..., bytes]) -> None:
    stored = read(write(encapsulated(FRAMES[1:2], pieces=3, has_table=False), frame_count=1)).stored
    np.testing.assert_allclose(stored, 100, atol=2)


@pytest.mark.parametrize("claimed", [1, 3])
@pytest.mark.parametrize("has_table", [True, False])
def test_frames_beyond_the_declared_count_are_not_dropped_in_silence(
    read: Read, write: Callable[..., bytes], claimed: int, has_table: bool
) -> None:
    with pytest.raises(BadValue) as refusal:
        read(write(encapsulated(FRAMES, pieces=1, has_table=has_table), frame_count=claimed))
    assert refusal.value.facts["present"] == 4


def test_frames_that_are_declared_but_absent_are_not_made_up(read: Read, write: Callable[..., bytes]) -> None:
    with pytest.raises(TruncatedPixels) as refusal:
        read(write(encapsulated(FRAMES, pieces=1, has_table=False), frame_count=5))
    assert refusal.value.facts == {"declared_frame_count": 5, "present_frame_count": 4}


def test_a_stream_without_its_delimiter_is_cut_off(read: Read, write: Callable[..., bytes]) -> None:
    with pytest.raises(CorruptPixels):
        read(write(encapsulated(FRAMES, pieces=1, has_table=False)[: -len(END)]))


def test_a_frame_of_another_size_than_the_header_states_is_refused(read: Read, write: Callable[..., bytes]) -> None:
    with pytest.raises(CorruptPixels) as refusal:
        read(write(encapsulated([*FRAMES[:3], jpeg(220, side_px=8)], pieces=1, has_table=False)))
    assert refusal.value.facts == {"rows_px": 8, "columns_px": 8}


def test_a_codestream_that_ends_early_is_refused(read: Read, write: Callable[..., bytes]) -> None:
    noise = np.random.default_rng(1).integers(0, 255, (16, 16)).astype(np.uint8)
    written = BytesIO()
    Image.fromarray(noise).save(written, "JPEG")
    half = written.getvalue()[: -len(written.getvalue()) // 8]
    with pytest.raises(CorruptPixels):
        read(write(encapsulated([half + b"\0" * (len(half) % 2)], pieces=1, has_table=False), frame_count=1))


def test_twelve_bit_jpeg_is_named_as_an_unsupported_codec(read: Read, write: Callable[..., bytes]) -> None:
    frame = bytearray(FRAMES[0])
    at = frame.index(b"\xff\xc0")
    frame[at + 1], frame[at + 4] = 0xC1, 12
    with pytest.raises(UnsupportedCodec) as refusal:
        read(write(encapsulated([bytes(frame)], pieces=1, has_table=False), frame_count=1, syntax=JPEG_EXTENDED))
    assert refusal.value.facts == {"bits": 12}


def test_native_pixels_under_a_compressed_syntax_are_corrupt(read: Read, compose: Compose) -> None:
    with pytest.raises(CorruptPixels):
        read(compose(syntax=JPEG_BASELINE))
