"""The transfer syntaxes we read, and which codec decodes each: an allow-list, so nothing is chosen by chance."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

Codec = Literal["native", "pylibjpeg", "pillow", "gdcm", "pyjpegls"]
Codestream = Literal["none", "rle", "jpeg", "jpeg2000"]


@dataclass(frozen=True, slots=True)
class TransferSyntax:
    """How one transfer syntax (PS3.5 section 10, PS3.6 table A-1) is read."""

    uid: str
    codec: Codec
    codestream: Codestream = "none"
    """The family of markers that a compressed frame begins with; JPEG-LS shares those of JPEG."""
    is_implicit_vr: bool = False
    is_little_endian: bool = True
    is_deflated: bool = False
    is_lossy: bool = False

    @property
    def is_encapsulated(self) -> bool:
        """Pixel Data is a sequence of fragments."""
        return self.codestream != "none"


_ROOT = "1.2.840.10008.1.2"

_TABLE = (
    TransferSyntax(_ROOT, "native", is_implicit_vr=True),
    TransferSyntax(f"{_ROOT}.1", "native"),
    TransferSyntax(f"{_ROOT}.1.99", "native", is_deflated=True),
    TransferSyntax(f"{_ROOT}.2", "native", is_little_endian=False),
    TransferSyntax(f"{_ROOT}.5", "pylibjpeg", "rle"),
    TransferSyntax(f"{_ROOT}.4.50", "pillow", "jpeg", is_lossy=True),
    # Extended: 8-bit only, see `check_frame`. The one library that decodes 12 bits is GPL.
    TransferSyntax(f"{_ROOT}.4.51", "pillow", "jpeg", is_lossy=True),
    TransferSyntax(f"{_ROOT}.4.57", "gdcm", "jpeg"),
    TransferSyntax(f"{_ROOT}.4.70", "gdcm", "jpeg"),
    TransferSyntax(f"{_ROOT}.4.80", "pyjpegls", "jpeg"),
    TransferSyntax(f"{_ROOT}.4.81", "pyjpegls", "jpeg", is_lossy=True),
    TransferSyntax(f"{_ROOT}.4.90", "pylibjpeg", "jpeg2000"),
    TransferSyntax(f"{_ROOT}.4.91", "pylibjpeg", "jpeg2000", is_lossy=True),
    TransferSyntax(f"{_ROOT}.4.201", "pylibjpeg", "jpeg2000"),
    TransferSyntax(f"{_ROOT}.4.202", "pylibjpeg", "jpeg2000"),
    TransferSyntax(f"{_ROOT}.4.203", "pylibjpeg", "jpeg2000", is_lossy=True),
)

TRANSFER_SYNTAXES: Final = MappingProxyType({syntax.uid: syntax for syntax in _TABLE})
"""By UID. Whatever is not in here is refused."""
