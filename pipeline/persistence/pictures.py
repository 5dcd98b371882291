"""The pictures of one reading, kept as one archive: one way to the disk for a case, one object in a remote store.

A ZIP without compression, which any tool opens: PNG is compressed already.
"""

import zipfile
from collections.abc import Mapping
from io import BytesIO

from pipeline.errors import IdentityMismatch, UploadMissing

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a ZIP can state: the same pictures give the same bytes."""


def pack(pictures: Mapping[str, bytes]) -> bytes:
    """Put pictures into an archive, by their names in the report, such as `image-1/overlay.png`."""
    archive = BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as members:
        for name, content in pictures.items():
            members.writestr(zipfile.ZipInfo(name, EPOCH), content)
    return archive.getvalue()


def picture_of(archive: bytes, name: str) -> bytes:
    """Take one picture out of an archive.

    Raises
    ------
    UploadMissing
        The archive has no such picture.
    IdentityMismatch
        It is no archive of ours, or was changed since.
    """
    try:
        with zipfile.ZipFile(BytesIO(archive)) as members:
            return members.read(name)
    except KeyError:
        raise UploadMissing("the archive holds no such picture") from None
    except zipfile.BadZipFile as error:
        raise IdentityMismatch("the archive of pictures is damaged", differs="picture") from error
