"""Stage 2: bring the instances' bytes here, and make sure that they are the bytes that were received."""

import hashlib
from collections.abc import Mapping

from pipeline.cases.fetched import FetchedInstance
from pipeline.errors import IdentityMismatch, UploadMissing
from pipeline.persistence.uploads import NamedSource, ObjectPlace
from schemas.work import CaseInput


def fetch(case_input: CaseInput, *, uploads: ObjectPlace, sources: Mapping[str, NamedSource]) -> list[FetchedInstance]:
    """Read the instances of a case, in their order; an identical instance that was sent twice counts once.

    Raises
    ------
    UploadMissing
        An instance, or the source that the case names, is not there.
    SourceUnavailable
        The store or source did not answer.
    IdentityMismatch
        The store gave other bytes than were received.
    """
    fetched: dict[str, FetchedInstance] = {}
    for instance in case_input.instances:
        data = _read(case_input.source, instance.key, uploads, sources)
        digest = hashlib.sha256(data).hexdigest()
        if instance.digest is not None and digest != instance.digest:
            raise IdentityMismatch("the store returned other bytes than were received")
        fetched.setdefault(digest, FetchedInstance(data, digest))
    return list(fetched.values())


def _read(source: str, key: str, uploads: ObjectPlace, sources: Mapping[str, NamedSource]) -> bytes:
    if source == "uploads":
        return uploads.read(key)
    try:
        place = sources[source]
    except KeyError as error:
        raise UploadMissing("the source is not configured", source=source) from error
    return place.read(key)
