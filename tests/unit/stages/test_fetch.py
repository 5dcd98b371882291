"""The bytes of a case, and nobody else's."""

from hashlib import sha256
from pathlib import Path
from uuid import UUID

import pytest

from pipeline.errors import IdentityMismatch, UploadMissing
from pipeline.persistence.sources import NamedSource
from pipeline.persistence.uploads import ObjectPlace, received_key
from pipeline.stages.fetch import fetch
from schemas.work import CaseInput, ReceivedInstance

LIMIT_S = 30.0
OTHER = UUID("01970000-0000-7000-8000-000000000002")
CONTENT, FOREIGN = b"a mammogram", b"another's mammogram"


@pytest.fixture
def uploads(tmp_path: Path, case_id: UUID) -> ObjectPlace:
    place = ObjectPlace(str(tmp_path / "uploads"))
    place.write(received_key(case_id, 0), CONTENT)
    place.write(received_key(case_id, 1), CONTENT)
    place.write(received_key(OTHER, 0), FOREIGN)
    return place


def received(case_id: UUID, number: int, content: bytes = CONTENT) -> ReceivedInstance:
    return ReceivedInstance(key=received_key(case_id, number), digest=sha256(content).hexdigest(), size_bytes=len(content))


def test_an_instance_that_was_sent_twice_is_fetched_once(uploads: ObjectPlace, case_id: UUID) -> None:
    case_input = CaseInput(instances=(received(case_id, 0), received(case_id, 1)))

    (fetched,) = fetch(case_input, case_id=case_id, uploads=uploads, sources={}, limit_s=LIMIT_S)

    assert (fetched.data, fetched.digest) == (CONTENT, sha256(CONTENT).hexdigest())


def test_other_bytes_than_were_received_are_withheld(uploads: ObjectPlace, case_id: UUID) -> None:
    uploads.write(received_key(case_id, 1), FOREIGN)
    case_input = CaseInput(instances=(received(case_id, 0), received(case_id, 1)))

    with pytest.raises(IdentityMismatch) as refused:
        fetch(case_input, case_id=case_id, uploads=uploads, sources={}, limit_s=LIMIT_S)

    assert refused.value.facts["differs"] == "digest"


def test_an_upload_of_another_case_is_withheld_though_its_digest_is_right(uploads: ObjectPlace, case_id: UUID) -> None:
    case_input = CaseInput(instances=(received(OTHER, 0, FOREIGN),))

    with pytest.raises(IdentityMismatch) as refused:
        fetch(case_input, case_id=case_id, uploads=uploads, sources={}, limit_s=LIMIT_S)

    assert refused.value.facts["differs"] == "key"


def test_a_path_below_a_source_is_nobodys_but_the_sources(tmp_path: Path, uploads: ObjectPlace, case_id: UUID) -> None:
    folder = tmp_path / "pacs"
    folder.mkdir()
    (folder / "image.dcm").write_bytes(FOREIGN)
    case_input = CaseInput(source="pacs", instances=(ReceivedInstance(key="image.dcm"),))

    (fetched,) = fetch(case_input, case_id=case_id, uploads=uploads, sources={"pacs": NamedSource(str(folder))}, limit_s=LIMIT_S)

    assert fetched.digest == sha256(FOREIGN).hexdigest()


def test_a_source_that_is_not_configured_has_nothing(uploads: ObjectPlace, case_id: UUID) -> None:
    case_input = CaseInput(source="elsewhere", instances=(ReceivedInstance(key="image.dcm"),))

    with pytest.raises(UploadMissing):
        fetch(case_input, case_id=case_id, uploads=uploads, sources={}, limit_s=LIMIT_S)
