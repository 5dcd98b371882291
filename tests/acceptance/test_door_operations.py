"""The operator's port, and the description that the door gives of itself."""

from typing import Any

import httpx
import pytest

from tests.acceptance.running import Deployment, Door, Json

pytestmark = pytest.mark.services

ROUTES = {
    "/v1/cases": {"get", "post"},
    "/v1/cases/{case_id}": {"get"},
    "/v1/cases/{case_id}/cancel": {"post"},
    "/v1/cases/{case_id}/events": {"get"},
    "/v1/cases/{case_id}/overlay.png": {"get"},
    "/v1/cases/{case_id}/probability.png": {"get"},
    "/v1/cases/{case_id}/result": {"get"},
    "/v1/cases/{case_id}/timeline": {"get"},
    "/v1/compensation": {"get"},
    "/v1/compensation/{case_id}/retry": {"post"},
    "/v1/compensation/{case_id}/close": {"post"},
    "/v1/webhook-endpoints": {"post"},
    "/v1/webhook-endpoints/{endpoint_id}": {"get", "delete"},
}
OPERATOR_PATHS = ("/livez", "/readyz", "/metrics")


@pytest.fixture(scope="module")
def described(deployment: Deployment) -> Json:
    found: Json = deployment.door.http.get("/openapi.json").json()
    return found


def operations(described: Json) -> list[tuple[str, Json]]:
    return [(f"{method} {path}", each) for path, methods in described["paths"].items() for method, each in methods.items()]


def has_example(described: Json, content: Json) -> bool:
    """An example of the whole, or one of each field that must be there."""
    if "example" in content or "examples" in content:
        return True
    schema: Any = content["schema"]
    if reference := schema.get("$ref"):
        schema = described["components"]["schemas"][reference.rpartition("/")[2]]
    return all("examples" in schema["properties"][name] for name in schema["required"])


@pytest.mark.parametrize("path", OPERATOR_PATHS)
def test_the_operators_questions_are_answered_on_their_own_port_alone(deployment: Deployment, path: str) -> None:
    inside = httpx.get(f"{deployment.access.metrics_url}{path}", trust_env=False)
    outside = deployment.door.http.get(path)

    assert inside.status_code == 200
    assert (outside.status_code, outside.json()["code"]) == (404, "not-found")


def test_cases_are_not_served_on_the_operators_port(deployment: Deployment) -> None:
    assert httpx.get(f"{deployment.access.metrics_url}/v1/cases", trust_env=False).status_code == 404


def test_the_metrics_count_what_the_processes_did(deployment: Deployment, studies: list[bytes]) -> None:
    deployment.door.answered(studies[0])

    text = httpx.get(f"{deployment.access.metrics_url}/metrics", trust_env=False).text

    # Each of these is counted by another process.
    for name in ("cases_admitted_total", "stage_duration_seconds_count", "batches_total", "gpu_forward_seconds_count", "queue_depth"):
        assert f"secondread_{name}{{" in text, name


def test_the_description_lists_every_route(described: Json) -> None:
    assert {path: set(methods) for path, methods in described["paths"].items()} == ROUTES


def test_every_operation_says_in_words_what_it_does(described: Json) -> None:
    assert [name for name, each in operations(described) if not (each.get("summary") and each.get("description"))] == []


def test_every_request_body_has_an_example(described: Json) -> None:
    bodies = [
        (name, kind, content)
        for name, each in operations(described)
        for kind, content in each.get("requestBody", {}).get("content", {}).items()
    ]

    assert {kind for _, kind, _ in bodies} == {"multipart/form-data", "application/json"}
    assert [(name, kind) for name, kind, content in bodies if not has_example(described, content)] == []


def test_every_operation_says_that_problems_are_problem_json(described: Json) -> None:
    assert [name for name, each in operations(described) if "application/problem+json" not in str(each["responses"])] == []


def test_every_operation_asks_for_a_key(described: Json) -> None:
    assert [name for name, each in operations(described) if not each.get("security")] == []


def test_the_description_can_be_read_in_a_browser(door: Door) -> None:
    page = door.http.get("/docs")

    assert page.status_code == 200
    assert "openapi.json" in page.text
