"""The whole reader: bytes of one instance to header and stored values."""

import warnings as python_warnings
from typing import Final

from pydicom.config import disable_value_validation

from pipeline.dicom.instance import DecodedInstance, DecodeLimits, StoredArray
from pipeline.dicom.reading.file import open_file
from pipeline.dicom.reading.header import read_header
from pipeline.dicom.reading.layout import read_layout
from pipeline.dicom.reading.optional import Warnings
from pipeline.dicom.reading.pixels import decode_pixels, find_pixels, inspect_pixels
from schemas.instance import InstanceHeader

_BITS_PER_BYTE: Final = 8


def read_instance(data: bytes, *, limits: DecodeLimits) -> DecodedInstance:
    """Read one instance, checking everything that the header tells before memory is taken for pixels.

    Meant for a child process: the libraries below are handed hostile bytes. Not for several threads at once.

    Raises
    ------
    RejectedInput
        One of `pipeline.dicom.errors`, by what is wrong with the instance.
    """
    with python_warnings.catch_warnings(), disable_value_validation():
        # The libraries' warnings quote values of the file; ours are codes.
        python_warnings.simplefilter("ignore")
        opened = open_file(data, inflate_budget_bytes=limits.inflate_budget_bytes)
        find_pixels(opened)  # headers without pixels are told so, however much else they lack
        layout = read_layout(opened.elements, pixel_budget_bytes=limits.pixel_budget_bytes)
        warnings = Warnings()
        source = inspect_pixels(opened, layout, warnings=warnings)
        header = read_header(opened, layout, warnings=warnings)
        stored = decode_pixels(source)
    return DecodedInstance(_as_decoded(header, stored), stored)


def _as_decoded(header: InstanceHeader, stored: StoredArray) -> InstanceHeader:
    if header.photometric_interpretation != "PALETTE COLOR":
        return header
    # The bits of the colours now, no longer those of the indices.
    return header.model_copy(update={"bits_stored": _BITS_PER_BYTE * stored.dtype.itemsize, "is_signed": False})
