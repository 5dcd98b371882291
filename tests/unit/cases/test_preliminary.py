"""A preliminary answer says what is known and guesses nothing."""

from datetime import UTC, datetime
from hashlib import sha256
from uuid import UUID

import pytest

from pipeline.cases.preliminary import OpenCase, preliminary_report
from schemas.report import PreliminaryReason
from schemas.work import CaseInput, CaseWork, PreparedCase, PreparedImage, PreparedInstance, ReceivedInstance
from tests.headers import breast_ultrasound

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)
CASE = UUID("01970000-0000-7000-8000-000000000001")
HEADER = breast_ultrasound()


def received(*digests: str | None) -> CaseInput:
    return CaseInput(instances=tuple(ReceivedInstance(key=f"{number}", digest=digest) for number, digest in enumerate(digests)))


def prepared(*outcomes: str, failure: str | None = None) -> CaseWork:
    instances = [PreparedInstance(digest=f"{number:064x}", header=HEADER) for number, _ in enumerate(outcomes)]
    images = [PreparedImage.model_validate({"instance": number, "frame": 1, "outcome": each}) for number, each in enumerate(outcomes)]
    if failure:
        instances.append(PreparedInstance(digest="f" * 64, failure=failure))
    return CaseWork(prepared=PreparedCase(model="m:1", instances=tuple(instances), images=tuple(images)))


@pytest.mark.parametrize(("reason", "words"), [("inference-wait", "waits for the model"), ("deadline", "by the deadline")])
def test_it_says_that_nothing_was_read_why_and_that_more_will_come(reason: PreliminaryReason, words: str) -> None:
    report = preliminary_report(OpenCase(CASE, 1, received("a" * 64), CaseWork()), reason, at=NOW)

    assert (report.kind, report.outcome, report.is_complete, report.preliminary_reason) == ("preliminary", "not_yet_read", False, reason)
    assert report.summary.startswith("Not yet read by the AI")
    assert words in report.summary
    assert report.summary.endswith("A final answer follows.")


def test_it_holds_no_finding_no_score_and_no_algorithm() -> None:
    report = preliminary_report(OpenCase(CASE, 1, received("a" * 64), prepared("ready", "ready")), "deadline", at=NOW)

    assert (report.algorithm, report.batch, report.model_input_digest, report.model_output_digest) == (None, None, None, None)
    assert [(image.status, image.findings, image.scores, image.artefacts) for image in report.images] == [("not_yet_read", (), {}, {})] * 2


def test_what_intake_has_seen_of_the_images_is_said() -> None:
    work = prepared("ready", "not_assessable", "not_applicable", failure="truncated-pixel-data")

    report = preliminary_report(OpenCase(CASE, 1, received("a" * 64), work), "inference-wait", at=NOW)

    assert [image.status for image in report.images] == ["not_yet_read", "not_assessable", "not_applicable", "unreadable"]
    assert report.images[3].reason == "truncated-pixel-data"
    assert "2 of 4 images cannot be assessed" in report.summary
    assert report.study_instance_uid == "1.2.3"


def test_the_digest_chain_is_that_of_the_final_report() -> None:
    digests = ["1" * 64, "2" * 64]
    expected = sha256("".join(digests).encode()).hexdigest()

    before = preliminary_report(OpenCase(CASE, 1, received(*digests, digests[0]), CaseWork()), "deadline", at=NOW)
    work = CaseWork(prepared=PreparedCase(model="m:1", instances=tuple(PreparedInstance(digest=each) for each in digests), images=()))
    after = preliminary_report(OpenCase(CASE, 1, received(*digests), work), "deadline", at=NOW)

    assert before.input_digest == after.input_digest == expected


def test_objects_that_were_not_fetched_yet_have_no_digest() -> None:
    assert preliminary_report(OpenCase(CASE, 1, received("1" * 64, None), CaseWork()), "deadline", at=NOW).input_digest is None
