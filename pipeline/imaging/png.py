"""PNG files of 8-bit images, written for speed: no row filters, which a library tries all five of on every row."""

import struct
import zlib
from typing import Final

import numpy as np
from isal import isal_zlib

from pipeline.imaging.arrays import ByteImage

SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
GREY, INDEXED = 0, 3
"""Colour types."""


def write_png(image: ByteImage, *, palette: bytes | None = None, is_noisy: bool = False) -> bytes:
    """Write an image as an 8-bit PNG.

    Parameters
    ----------
    image
        (row, column), uint8: grey values, or entries of the palette.
    palette
        256 times red, green, blue; None for grey.
    is_noisy
        Noise hardly shrinks: such an image is stored as it is. A flat one is deflated.

    References
    ----------
    ISO/IEC 15948 (PNG), 11.2.2 IHDR, 11.2.3 PLTE, 11.2.4 IDAT, 9.2 filter type 0.
    """
    rows_px, columns_px = image.shape
    # Each row opens with its filter type: 0, none.
    filtered = np.empty((rows_px, columns_px + 1), dtype=np.uint8)
    filtered[:, 0] = 0
    filtered[:, 1:] = image
    data = zlib.compress(filtered.data, zlib.Z_NO_COMPRESSION) if is_noisy else isal_zlib.compress(filtered.data, isal_zlib.ISAL_BEST_SPEED)
    header = struct.pack(">IIBBBBB", columns_px, rows_px, 8, GREY if palette is None else INDEXED, 0, 0, 0)
    chunks = [SIGNATURE, _chunk(b"IHDR", header)]
    if palette is not None:
        chunks.append(_chunk(b"PLTE", palette))
    chunks += [_chunk(b"IDAT", data), _chunk(b"IEND", b"")]
    return b"".join(chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", isal_zlib.crc32(data, isal_zlib.crc32(kind)))
