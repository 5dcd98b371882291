"""Bodies, read back as a receiver would: with a JSON parser alone."""

import json
from datetime import datetime, timedelta, timezone
from typing import Any, get_args
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from pipeline.callbacks.event import CaseFacts, case_event_body, endpoint_event_body
from pipeline.cases.states import CaseState
from pipeline.flow import Lane
from schemas.webhook import CaseEvent, CaseStatus, EndpointEvent, WebhookEvent

CASE = UUID("01970000-0000-7000-8000-000000000001")
URL = "https://reads.example"
DONE = CaseFacts(CASE, status="completed", lane=Lane.URGENT, version=2, client_reference="order-7", result_kind="final", outcome="findings")


def test_a_completed_case_tells_where_its_result_is(noon: datetime) -> None:
    body = case_event_body("case.completed", DONE, at=noon, public_url=URL + "/")

    case_url = "https://reads.example/v1/cases/case_01970000000070008000000000000001"
    assert json.loads(body) == {
        "type": "case.completed",
        "timestamp": "2026-01-02T12:00:00.000Z",
        "data": {
            "case_id": "case_01970000000070008000000000000001",
            "client_reference": "order-7",
            "version": 2,
            "status": "completed",
            "result_kind": "final",
            "outcome": "findings",
            "lane": "urgent",
            "links": {"case": case_url, "result": case_url + "/result?version=2"},
        },
    }


def test_a_case_without_a_result_links_to_none(noon: datetime) -> None:
    facts = CaseFacts(CASE, status="failed", lane=Lane.ROUTINE)

    data = json.loads(case_event_body("case.failed", facts, at=noon, public_url=URL))["data"]

    assert (data["version"], data["result_kind"], data["outcome"], data["links"]["result"]) == (0, None, None, None)


def test_the_timestamp_is_utc_with_milliseconds(noon: datetime) -> None:
    local = (noon + timedelta(microseconds=123_999)).astimezone(timezone(timedelta(hours=2)))

    body = case_event_body("case.completed", DONE, at=local, public_url=URL)

    assert json.loads(body)["timestamp"] == "2026-01-02T12:00:00.123Z"


def test_the_body_is_compact_and_the_same_each_time(noon: datetime) -> None:
    first, second = (case_event_body("case.completed", DONE, at=noon, public_url=URL) for _ in range(2))

    assert first == second
    assert first == json.dumps(json.loads(first), separators=(",", ":")).encode()


@given(reference=st.text(max_size=128), url=st.text("a", max_size=900))
def test_no_body_reaches_four_kilobytes(reference: str, url: str) -> None:
    facts = CaseFacts(CASE, "completed", Lane.COMPENSATION, 10**9, reference, "preliminary", "not_applicable")

    body = case_event_body(
        "case.preliminary", facts, at=datetime.fromisoformat("2026-01-02T12:00:00Z"), public_url=f"https://{url}.example"
    )

    assert len(body) < 4096


def test_a_longer_client_reference_is_refused(noon: datetime) -> None:
    facts = CaseFacts(CASE, status="completed", lane=Lane.URGENT, client_reference="x" * 129)

    with pytest.raises(ValidationError):
        case_event_body("case.completed", facts, at=noon, public_url=URL)


def test_an_endpoint_learns_why_it_was_disabled(noon: datetime) -> None:
    body = endpoint_event_body("endpoint.disabled", endpoint_id=CASE, at=noon, reason="gone")

    assert json.loads(body)["data"] == {"endpoint_id": "whe_01970000000070008000000000000001", "reason": "gone"}


def test_the_type_tells_which_body_follows(noon: datetime) -> None:
    either: TypeAdapter[Any] = TypeAdapter(WebhookEvent)

    about_a_case = either.validate_json(case_event_body("case.completed", DONE, at=noon, public_url=URL))
    about_an_endpoint = either.validate_json(endpoint_event_body("endpoint.test", endpoint_id=CASE, at=noon))

    assert isinstance(about_a_case, CaseEvent)
    assert isinstance(about_an_endpoint, EndpointEvent)


def test_the_published_states_are_the_ledger_s() -> None:
    assert set(get_args(CaseStatus)) == {state.value for state in CaseState}
