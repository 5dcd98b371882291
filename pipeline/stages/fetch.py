"""Stage 2: bring the instances' bytes here, and make sure that they are the bytes that were received."""

import hashlib
import time
from collections.abc import Mapping

from pipeline.cases.fetched import FetchedInstance
from pipeline.errors import IdentityMismatch, SourceTimeout, UploadMissing
from pipeline.persistence.sources import NamedSource
from pipeline.persistence.uploads import ObjectPlace
from schemas.work import CaseInput


def fetch(case_input: CaseInput, *, uploads: ObjectPlace, sources: Mapping[str, NamedSource], limit_s: float) -> list[FetchedInstance]:
    """Read the instances of a case, in their order; an identical instance that was sent twice counts once.

    All of them together may take `limit_s` seconds.

    Raises
    ------
    UploadMissing
        An instance, or the source that the case names, is not there.
    SourceUnavailable
        The store or source did not answer.
    SourceTimeout, SourceBusy
        It did not answer in time, or lets too many others wait.
    IdentityMismatch
        The store gave other bytes than were received.
    """
    place = _place(case_input.source, uploads, sources)
    until = time.monotonic() + limit_s
    fetched: dict[str, FetchedInstance] = {}
    for instance in case_input.instances:
        left_s = until - time.monotonic()
        if left_s <= 0:
            raise SourceTimeout("the instances were not here in time", fetched_count=len(fetched), limit_s=limit_s)
        data = place.read(instance.key, limit_s=left_s)
        digest = hashlib.sha256(data).hexdigest()
        if instance.digest is not None and digest != instance.digest:
            raise IdentityMismatch("the store returned other bytes than were received")
        fetched.setdefault(digest, FetchedInstance(data, digest))
    return list(fetched.values())


def _place(source: str, uploads: ObjectPlace, sources: Mapping[str, NamedSource]) -> ObjectPlace | NamedSource:
    if source == "uploads":
        return uploads
    try:
        return sources[source]
    except KeyError as error:
        raise UploadMissing("the source is not configured", source=source) from error
