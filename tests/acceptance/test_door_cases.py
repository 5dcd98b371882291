"""What the door does with a case: promise it once, say where it stands, show its answer, let it go."""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from httpx_sse import EventSource
from jsonschema import Draft202012Validator

from tests.acceptance.running import DEADLINE_S, Deployment, Door, Json, eventually

pytestmark = pytest.mark.services

MakeDoor = Callable[..., Door]

SHORTLY_S = 30.0
PATH_OF_A_CASE = ["accepted", "fetching", "awaiting_inference", "inferring", "awaiting_report", "postprocessing", "completed"]
REPORT_SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "report.schema.json"
ALL_SCOPES = ("cases:read", "cases:write")


def events_of(response: httpx.Response) -> list[tuple[int, str]]:
    """(version, status) of each event until the stream ends."""
    return [(int(event.id), event.json()["status"]) for event in EventSource(response).iter_sse()]


# Submit.


def test_an_accepted_case_is_answered_with_its_address(deployment: Deployment, studies: Sequence[bytes]) -> None:
    with deployment.paused("intake"):
        accepted = deployment.door.submit(studies[0])

    case = accepted.json()
    assert (accepted.status_code, case["status"], case["version"], case["result"]) == (202, "accepted", 1, None)
    assert accepted.headers["Location"] == f"/v1/cases/{case['case_id']}"
    assert accepted.headers["Retry-After"] == "2"
    assert "Idempotency-Replayed" not in accepted.headers
    assert deployment.door.http.get(accepted.headers["Location"]).json()["case_id"] == case["case_id"]


def test_a_client_that_waits_is_answered_with_the_result(door: Door, studies: Sequence[bytes]) -> None:
    answered = door.submit(studies[0], wait_s=20)

    assert (answered.status_code, answered.json()["status"]) == (200, "completed")
    assert answered.headers["Preference-Applied"] == "wait=20"
    assert answered.json()["result"]["outcome"] == "findings"


def test_a_client_waits_no_longer_than_it_wished(deployment: Deployment, studies: Sequence[bytes]) -> None:
    with deployment.paused("intake"):
        accepted = deployment.door.submit(studies[0], wait_s=1)

    assert (accepted.status_code, accepted.json()["status"]) == (202, "accepted")
    assert 0.9 < accepted.elapsed.total_seconds() < 5


def test_the_deadline_is_absolute_and_never_later_than_the_operators(door: Door, studies: Sequence[bytes]) -> None:
    def budget_s(**fields: str) -> float:
        case = door.accepted(studies[0], fields=fields)
        return (datetime.fromisoformat(case["deadline_at"]) - datetime.fromisoformat(case["accepted_at"])).total_seconds()

    assert budget_s() == pytest.approx(DEADLINE_S)
    assert budget_s(deadline_s="12.5") == pytest.approx(12.5)
    assert budget_s(deadline_s="3600") == pytest.approx(DEADLINE_S)


def test_images_in_a_configured_source_are_read_like_uploaded_ones(deployment: Deployment, studies: Sequence[bytes]) -> None:
    uploaded = deployment.door.answered(studies[0])
    (deployment.archive / "2026").mkdir(exist_ok=True)
    (deployment.archive / "2026" / "us-1.dcm").write_bytes(studies[0])

    headers = {"Idempotency-Key": uuid4().hex, "Prefer": "wait=20"}
    named = deployment.door.http.post("/v1/cases", json={"source": "archive", "paths": ["2026/us-1.dcm"]}, headers=headers).json()

    assert named["result"]["summary"] == uploaded["result"]["summary"]
    assert named["result"]["input_digest"] == uploaded["result"]["input_digest"]


@pytest.mark.parametrize("path", ["../state/access.json", "/etc/hostname", "2026/../../state/access.json", "nothing.dcm"])
def test_a_path_leads_nowhere_outside_its_source(door: Door, path: str) -> None:
    headers = {"Idempotency-Key": uuid4().hex, "Prefer": "wait=20"}

    case = door.http.post("/v1/cases", json={"source": "archive", "paths": [path]}, headers=headers).json()

    assert (case["status"], case["failure"]["code"]) == ("failed", "instance-not-found")


# Once.


def test_the_same_request_with_the_same_key_is_the_same_case(door: Door, studies: Sequence[bytes]) -> None:
    first, second = (door.submit(studies[0], key="replayed-" + "0" * 24) for _ in range(2))

    assert second.json()["case_id"] == first.json()["case_id"]
    assert second.headers["Idempotency-Replayed"] == "true"


def test_the_same_key_with_another_request_is_refused(door: Door, studies: Sequence[bytes]) -> None:
    key = uuid4().hex
    door.submit(studies[0], key=key)

    others = [door.submit(studies[1], key=key), door.submit(studies[0], key=key, fields={"lane": "urgent"})]

    assert [(other.status_code, other.json()["code"]) for other in others] == [(422, "idempotency-key-reused")] * 2


def test_a_key_means_nothing_to_another_tenant(door: Door, make_door: MakeDoor, studies: Sequence[bytes]) -> None:
    key = uuid4().hex
    mine = door.submit(studies[0], key=key)

    theirs = make_door("another", *ALL_SCOPES).submit(studies[1], key=key)

    assert theirs.status_code == 202
    assert theirs.json()["case_id"] != mine.json()["case_id"]


def test_fifty_posts_at_once_with_one_key_make_one_case(deployment: Deployment, studies: Sequence[bytes]) -> None:
    key, uploads = uuid4().hex, deployment.state_dir / "uploads"
    before = set(uploads.glob("*/*-received-*"))

    with ThreadPoolExecutor(50) as threads:
        answers = list(threads.map(lambda _: deployment.door.submit(studies[0], key=key), range(50)))

    assert {answer.status_code for answer in answers} <= {200, 202}
    (case_id,) = {answer.json()["case_id"] for answer in answers}
    assert sum("Idempotency-Replayed" not in answer.headers for answer in answers) == 1
    deployment.door.ended(case_id, within_s=SHORTLY_S)
    assert {path.name.split("-")[0] for path in set(uploads.glob("*/*-received-*")) - before} == {case_id.removeprefix("case_")}


# Watch.


def test_who_has_the_newest_version_is_told_so(door: Door, studies: Sequence[bytes]) -> None:
    case_id = door.answered(studies[0])["case_id"]
    etag = door.http.get(f"/v1/cases/{case_id}").headers["ETag"]

    unchanged = door.http.get(f"/v1/cases/{case_id}", headers={"If-None-Match": etag})

    assert (unchanged.status_code, unchanged.content, unchanged.headers["ETag"]) == (304, b"", etag)


def test_the_etag_changes_with_the_case(deployment: Deployment, studies: Sequence[bytes]) -> None:
    with deployment.paused("intake"):
        case_id = deployment.door.accepted(studies[0])["case_id"]
        before = deployment.door.http.get(f"/v1/cases/{case_id}")
    deployment.door.ended(case_id, within_s=SHORTLY_S)

    after = deployment.door.http.get(f"/v1/cases/{case_id}", headers={"If-None-Match": before.headers["ETag"]})

    assert after.status_code == 200
    assert after.headers["ETag"] != before.headers["ETag"]
    assert "Retry-After" in before.headers
    assert "Retry-After" not in after.headers


def test_a_reader_that_waits_gets_the_answer_when_it_comes(deployment: Deployment, studies: Sequence[bytes]) -> None:
    with ThreadPoolExecutor(1) as threads:
        with deployment.paused("intake"):
            case_id = deployment.door.accepted(studies[0])["case_id"]
            waiting = threads.submit(deployment.door.http.get, f"/v1/cases/{case_id}", headers={"Prefer": "wait=25"})
        answer = waiting.result()

    assert (answer.json()["status"], answer.headers["Preference-Applied"]) == ("completed", "wait=25")
    assert answer.elapsed.total_seconds() < 20


def test_the_events_tell_every_step_in_order(door: Door, studies: Sequence[bytes]) -> None:
    case_id = door.accepted(studies[0])["case_id"]

    with door.http.stream("GET", f"/v1/cases/{case_id}/events") as stream:
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        events = events_of(stream)

    assert events == list(enumerate(PATH_OF_A_CASE, start=1))


def test_the_events_resume_after_the_last_that_was_seen(door: Door, studies: Sequence[bytes]) -> None:
    case_id = door.answered(studies[0])["case_id"]

    with door.http.stream("GET", f"/v1/cases/{case_id}/events", headers={"Last-Event-ID": "4"}) as stream:
        assert events_of(stream) == [(5, "awaiting_report"), (6, "postprocessing"), (7, "completed")]


def test_an_event_is_told_while_the_case_goes_on(deployment: Deployment, studies: Sequence[bytes]) -> None:
    with deployment.paused("inference"):
        case_id = deployment.door.accepted(studies[0])["case_id"]
        with deployment.door.http.stream("GET", f"/v1/cases/{case_id}/events") as stream:
            seen = [event.json()["status"] for event in islice(EventSource(stream).iter_sse(), 3)]

    assert seen == PATH_OF_A_CASE[:3]


def test_the_list_gives_pages_newest_first_and_only_once(make_door: MakeDoor, studies: Sequence[bytes]) -> None:
    door = make_door(f"lists-{uuid4().hex}", *ALL_SCOPES)
    sent = [door.accepted(studies[0], fields={"client_reference": f"order-{number}"})["case_id"] for number in range(5)]

    pages: list[Json] = [door.http.get("/v1/cases", params={"limit": 2}).json()]
    while cursor := pages[-1]["next_cursor"]:
        pages.append(door.http.get("/v1/cases", params={"limit": 2, "cursor": cursor}).json())

    assert [len(page["cases"]) for page in pages] == [2, 2, 1]
    assert [case["case_id"] for page in pages for case in page["cases"]] == sent[::-1]
    assert pages[0]["cases"][0]["client_reference"] == "order-4"


def test_the_list_is_narrowed_by_status_lane_and_time(make_door: MakeDoor, studies: Sequence[bytes]) -> None:
    door = make_door(f"lists-{uuid4().hex}", *ALL_SCOPES)
    broken = door.answered(b"no image", fields={"lane": "urgent"})
    read = door.answered(studies[0])

    def listed(**narrowed: str) -> list[str]:
        return [case["case_id"] for case in door.http.get("/v1/cases", params=narrowed).json()["cases"]]

    later = datetime.fromisoformat(read["accepted_at"]) + timedelta(seconds=1)
    assert listed(status="failed") == listed(lane="urgent") == [broken["case_id"]]
    assert listed(status="completed") == listed(since=read["accepted_at"]) == [read["case_id"]]
    assert listed(since=later.isoformat()) == listed(status="cancelled") == []


# Read.


def test_a_result_keeps_to_the_published_schema(door: Door, studies: Sequence[bytes]) -> None:
    case = door.answered(studies[0])
    result = door.http.get(f"/v1/cases/{case['case_id']}/result")

    Draft202012Validator(json.loads(REPORT_SCHEMA.read_text(encoding="utf-8"))).validate(result.json())
    assert result.json() == case["result"]
    assert result.headers["ETag"] == '"1"'


def test_a_version_that_was_never_written_is_not_ready(door: Door, studies: Sequence[bytes]) -> None:
    case_id = door.answered(studies[0])["case_id"]

    assert door.http.get(f"/v1/cases/{case_id}/result", params={"version": 1}).status_code == 200
    assert door.http.get(f"/v1/cases/{case_id}/result", params={"version": 2}).json()["code"] == "result-not-ready"


def test_images_of_two_studies_are_no_case(door: Door, studies: Sequence[bytes]) -> None:
    case = door.answered(studies[0], studies[1])

    assert (case["status"], case["failure"]["code"]) == ("failed", "mixed-studies")


def test_a_failure_says_what_happened_and_what_to_do(door: Door) -> None:
    case = door.answered(b"<html>sign in first</html>")

    assert case["status"] == "failed"
    assert case["failure"]["code"] == "not-dicom"
    assert case["failure"]["title"] == "The file is not a DICOM instance"
    assert case["failure"]["advice"].endswith(".")


# Let go.


@pytest.mark.parametrize(("worker", "waits_as"), [("intake", "accepted"), ("inference", "awaiting_inference")])
def test_a_case_that_waits_can_be_cancelled_and_stays_so(
    deployment: Deployment, studies: Sequence[bytes], worker: str, waits_as: str
) -> None:
    door = deployment.door
    with deployment.paused(worker):
        case_id = door.accepted(studies[0])["case_id"]
        assert eventually(lambda: door.case(case_id)["status"] == waits_as, within_s=SHORTLY_S)
        cancelled = door.http.post(f"/v1/cases/{case_id}/cancel")
    next_case = door.answered(studies[1])

    assert (cancelled.status_code, cancelled.json()["status"]) == (202, "cancelled")
    assert next_case["status"] == "completed"
    assert door.case(case_id)["status"] == "cancelled"
    assert door.http.get(f"/v1/cases/{case_id}/result").json()["code"] == "result-not-ready"


@pytest.mark.parametrize("is_cancelled", [True, False], ids=["cancelled", "completed"])
def test_a_case_that_has_ended_cannot_be_cancelled(deployment: Deployment, studies: Sequence[bytes], *, is_cancelled: bool) -> None:
    door = deployment.door
    if is_cancelled:
        with deployment.paused("intake"):
            case_id = door.accepted(studies[0])["case_id"]
            door.http.post(f"/v1/cases/{case_id}/cancel")
    else:
        case_id = door.answered(studies[0])["case_id"]

    refused = door.http.post(f"/v1/cases/{case_id}/cancel")

    assert (refused.status_code, refused.json()["code"], refused.json()["case_id"]) == (409, "case-already-ended", case_id)
