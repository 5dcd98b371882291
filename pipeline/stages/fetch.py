"""Stage 2: bring the instances' bytes here, and make sure that they are the bytes that were received."""

import hashlib
from collections.abc import Mapping
from uuid import UUID

from pipeline.cases.fetched import FetchedInstance
from pipeline.errors import IdentityMismatch, UploadMissing
from pipeline.persistence.uploads import NamedSource, ObjectPlace, is_of_case
from schemas.work import CaseInput


def fetch(case_input: CaseInput, *, case_id: UUID, uploads: ObjectPlace, sources: Mapping[str, NamedSource]) -> list[FetchedInstance]:
    """Read the instances of a case, in their order; an identical instance that was sent twice counts once.

    Raises
    ------
    UploadMissing
        An instance, or the source that the case names, is not there.
    SourceUnavailable
        The store or source did not answer.
    IdentityMismatch
        The store gave other bytes than were received, or what was uploaded is kept for another case.
    """
    fetched: dict[str, FetchedInstance] = {}
    for instance in case_input.instances:
        if case_input.source == "uploads" and not is_of_case(instance.key, case_id):
            raise IdentityMismatch("the upload is another case's", case_id=case_id, differs="key")
        data = _read(case_input.source, instance.key, uploads, sources)
        digest = hashlib.sha256(data).hexdigest()
        if instance.digest is not None and digest != instance.digest:
            raise IdentityMismatch("the store returned other bytes than were received", case_id=case_id, differs="digest")
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
