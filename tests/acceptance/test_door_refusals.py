"""What the door refuses: every refusal has one shape, a code of the closed list, and never repeats what was sent."""

from collections.abc import Callable, Iterator, Sequence
from uuid import UUID, uuid4

import httpx
import pytest

from tests.acceptance.running import MAX_BODY_BYTES, Deployment, Door

pytestmark = pytest.mark.services

MakeDoor = Callable[..., Door]
Request = Callable[[Door, bytes], httpx.Response]

UNKNOWN_CASE = f"case_{uuid4().hex}"
SENT = "Sentinel^Of^The^Body"
"""Stands for a patient's name that a client put where it does not belong."""
FIELDS = {"type", "title", "status", "detail", "instance", "code", "advice", "retryable"}


def key() -> dict[str, str]:
    return {"Idempotency-Key": uuid4().hex}


def files(content: bytes, *, count: int = 1) -> list[tuple[str, tuple[str, bytes, str]]]:
    return [("instances", (f"{SENT}.dcm", content, "application/dicom"))] * count


def chunks() -> Iterator[bytes]:
    """A form of no stated length, whose one file goes beyond the limit."""
    yield b'--frontier\r\nContent-Disposition: form-data; name="instances"; filename="a.dcm"\r\n\r\n'
    for _ in range(MAX_BODY_BYTES // 2**20 + 1):
        yield b"\0" * 2**20


def multipart() -> dict[str, str]:
    return {"Content-Type": "multipart/form-data; boundary=frontier"}


def source(**changed: object) -> dict[str, object]:
    return {"source": "archive", "paths": ["a.dcm"]} | changed


REQUESTS: dict[str, tuple[int, str, Request]] = {
    "no key": (401, "unauthenticated", lambda door, image: httpx.get(f"{door.http.base_url}/v1/cases", trust_env=False)),
    "a key of nobody": (
        401,
        "unauthenticated",
        lambda door, image: door.http.get("/v1/cases", headers={"Authorization": f"Bearer srk_{SENT}"}),
    ),
    "no idempotency key": (428, "idempotency-key-missing", lambda door, image: door.http.post("/v1/cases", files=files(image))),
    "a short idempotency key": (428, "idempotency-key-missing", lambda door, image: door.submit(image, key="seven77")),
    "an idempotency key with a blank": (428, "idempotency-key-missing", lambda door, image: door.submit(image, key="12345678 9")),
    "no file in the form": (
        400,
        "malformed",
        lambda door, image: door.http.post("/v1/cases", data={"lane": "urgent"}, files={"x": (None, SENT)}, headers=key()),
    ),
    "a broken form": (
        400,
        "malformed",
        lambda door, image: door.http.post("/v1/cases", content=b"--other\r\nnot a form", headers=key() | multipart()),
    ),
    "broken JSON": (
        400,
        "malformed",
        lambda door, image: door.http.post("/v1/cases", content=b'{"source": ', headers=key() | {"Content-Type": "application/json"}),
    ),
    "a cursor of nobody": (400, "malformed", lambda door, image: door.http.get("/v1/cases", params={"cursor": SENT})),
    "an unknown lane": (422, "invalid", lambda door, image: door.submit(image, fields={"lane": SENT})),
    "an unknown field": (422, "invalid", lambda door, image: door.submit(image, fields={SENT: "1"})),
    "a deadline in the past": (422, "invalid", lambda door, image: door.submit(image, fields={"deadline_s": "-1"})),
    "a long client reference": (422, "invalid", lambda door, image: door.submit(image, fields={"client_reference": SENT * 20})),
    "an unknown webhook endpoint": (422, "invalid", lambda door, image: door.submit(image, fields={"webhook_endpoint_id": SENT})),
    "an unknown source": (422, "invalid", lambda door, image: door.http.post("/v1/cases", json=source(source=SENT), headers=key())),
    "a source as a URL": (
        422,
        "invalid",
        lambda door, image: door.http.post("/v1/cases", json=source(source="http://127.0.0.1/x"), headers=key()),
    ),
    "no paths": (422, "invalid", lambda door, image: door.http.post("/v1/cases", json=source(paths=[]), headers=key())),
    "a page of a thousand": (422, "invalid", lambda door, image: door.http.get("/v1/cases", params={"limit": 1000})),
    "a status of nobody": (422, "invalid", lambda door, image: door.http.get("/v1/cases", params={"status": SENT})),
    "another type of body": (
        415,
        "unsupported-media-type",
        lambda door, image: door.http.post("/v1/cases", content=image, headers=key() | {"Content-Type": "application/dicom"}),
    ),
    "a large body": (413, "too-large", lambda door, image: door.submit(b"\0" * (MAX_BODY_BYTES + 1))),
    "a large body of no stated length": (
        413,
        "too-large",
        lambda door, image: door.http.post("/v1/cases", content=chunks(), headers=key() | multipart()),
    ),
    "many instances": (413, "too-large", lambda door, image: door.http.post("/v1/cases", files=files(b"x", count=65), headers=key())),
    "many paths": (
        413,
        "too-large",
        lambda door, image: door.http.post("/v1/cases", json=source(paths=[f"{n}.dcm" for n in range(65)]), headers=key()),
    ),
    "an unknown address": (404, "not-found", lambda door, image: door.http.get(f"/v2/{SENT}")),
    "an unknown case": (404, "not-found", lambda door, image: door.http.get(f"/v1/cases/{UNKNOWN_CASE}")),
    "a case id of another kind": (404, "not-found", lambda door, image: door.http.get(f"/v1/cases/{SENT}")),
    "another method": (405, "method-not-allowed", lambda door, image: door.http.delete("/v1/cases")),
}


def assert_is_problem(response: httpx.Response, status: int, code: str) -> None:
    assert (response.status_code, response.headers["Content-Type"]) == (status, "application/problem+json"), response.text
    problem = response.json()
    assert problem.keys() >= FIELDS
    assert (problem["code"], problem["status"], problem["type"]) == (code, status, f"/problems/{code}")
    assert problem["instance"].startswith("urn:uuid:")
    assert UUID(problem["instance"].removeprefix("urn:uuid:"))
    assert problem["title"]
    assert problem["advice"].endswith(".")
    assert problem["retryable"] is ("Retry-After" in response.headers)
    assert SENT.lower() not in response.text.lower()


@pytest.mark.parametrize(("status", "code", "ask"), REQUESTS.values(), ids=REQUESTS.keys())
def test_a_refusal_is_a_problem_of_the_list(door: Door, studies: Sequence[bytes], status: int, code: str, ask: Request) -> None:
    assert_is_problem(ask(door, studies[0]), status, code)


def test_without_a_key_the_door_says_how_to_show_one(deployment: Deployment) -> None:
    refused = httpx.get(f"{deployment.access.url}/v1/cases", trust_env=False)

    assert refused.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("scope", "ask"),
    [
        ("cases:read", lambda door, case_id: door.submit(b"x")),
        ("cases:read", lambda door, case_id: door.http.post(f"/v1/cases/{case_id}/cancel")),
        ("cases:write", lambda door, case_id: door.http.get(f"/v1/cases/{case_id}")),
        ("cases:write", lambda door, case_id: door.http.get("/v1/cases")),
        ("cases:write", lambda door, case_id: door.http.post("/v1/webhook-endpoints", json={"url": "https://ris.example/hook"})),
    ],
    ids=["submit", "cancel", "read", "list", "add an endpoint"],
)
def test_a_key_opens_only_what_its_scope_names(make_door: MakeDoor, scope: str, ask: Callable[[Door, str], httpx.Response]) -> None:
    assert_is_problem(ask(make_door("scopes", scope), UNKNOWN_CASE), 403, "forbidden")


@pytest.mark.parametrize("part", ["", "/result", "/timeline", "/events", "/overlay.png", "/probability.png"])
def test_a_case_of_another_tenant_looks_like_none(door: Door, make_door: MakeDoor, studies: Sequence[bytes], part: str) -> None:
    case_id = door.answered(studies[0])["case_id"]

    stranger = make_door("stranger", "cases:read")

    assert_is_problem(stranger.http.get(f"/v1/cases/{case_id}{part}"), 404, "not-found")


def test_a_case_of_another_tenant_cannot_be_cancelled(deployment: Deployment, make_door: MakeDoor, studies: Sequence[bytes]) -> None:
    with deployment.paused("intake"):
        case_id = deployment.door.accepted(studies[0])["case_id"]
        refused = make_door("stranger", "cases:write").http.post(f"/v1/cases/{case_id}/cancel")

    assert_is_problem(refused, 404, "not-found")
    assert deployment.door.ended(case_id, within_s=30)["status"] == "completed"


def test_a_webhook_endpoint_of_another_tenant_looks_like_none(door: Door, make_door: MakeDoor) -> None:
    endpoint_id = door.http.post("/v1/webhook-endpoints", json={"url": "http://127.0.0.1:18080/hook"}).json()["webhook_endpoint_id"]

    stranger = make_door("stranger", "webhooks:write")

    assert_is_problem(stranger.http.get(f"/v1/webhook-endpoints/{endpoint_id}"), 404, "not-found")
    assert_is_problem(stranger.http.delete(f"/v1/webhook-endpoints/{endpoint_id}"), 404, "not-found")


@pytest.mark.parametrize("part", ["result", "overlay.png", "probability.png"])
def test_a_result_that_is_not_there_yet_is_worth_asking_again(deployment: Deployment, studies: Sequence[bytes], part: str) -> None:
    with deployment.paused("intake"):
        case_id = deployment.door.accepted(studies[0])["case_id"]
        refused = deployment.door.http.get(f"/v1/cases/{case_id}/{part}")

    assert_is_problem(refused, 404, "result-not-ready")
    assert refused.json()["case_id"] == case_id
    assert refused.json()["retry_after_s"] == int(refused.headers["Retry-After"])


def test_the_problem_of_a_wrong_field_points_at_it(door: Door, studies: Sequence[bytes]) -> None:
    refused = door.submit(studies[0], fields={"lane": SENT, "deadline_s": "0"})

    assert {each["pointer"] for each in refused.json()["errors"]} == {"/body/lane", "/body/deadline_s"}
