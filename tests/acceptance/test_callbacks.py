"""Callbacks as a receiver sees them: verified with the library that the specification's authors publish."""

import json
from collections.abc import Sequence

import pytest
from standardwebhooks import Webhook

from pipeline.dicom.phantom import PhantomStudy, phantom_instance
from pipeline.imaging.phantom import phantom
from tests.acceptance.receiver import SHORTLY_S, Receiver, running_receiver
from tests.acceptance.running import Door, Json, eventually

pytestmark = pytest.mark.services

PATIENT = ("Zebedee-Canary", "PID-90210-CANARY", "ACC-55-CANARY")
MOST_BYTES = 4_096


def add_endpoint(door: Door, receiver: Receiver) -> tuple[str, str]:
    """The id of a new endpoint and its secret."""
    added = door.http.post("/v1/webhook-endpoints", json={"url": receiver.url})
    assert added.status_code == 201, added.text
    return added.json()["webhook_endpoint_id"], added.json()["secret"]


def deliveries_of(door: Door, case: Json, state: str) -> list[Json]:
    """The callbacks of a case in the ledger, once they are all in this state."""

    def settled() -> list[Json]:
        found: list[Json] = door.timeline(case["case_id"])["deliveries"]
        return found if found and all(each["state"] == state for each in found) else []

    return eventually(settled, within_s=SHORTLY_S)


@pytest.fixture
def image_of_a_patient() -> bytes:
    name, patient_id, accession_number = PATIENT
    told = PhantomStudy(name="callbacks", patient_name=name, patient_id=patient_id, accession_number=accession_number)
    return phantom_instance(phantom(2)[0], told)


def test_a_callback_is_signed_as_the_standard_says(door: Door, receiver: Receiver, studies: Sequence[bytes]) -> None:
    endpoint_id, secret = add_endpoint(door, receiver)

    case = door.answered(studies[0], fields={"webhook_endpoint_id": endpoint_id, "client_reference": "order-17"})

    (delivery,) = receiver.wait_for(1)
    event = Webhook(secret).verify(delivery.body, delivery.headers)
    assert event["type"] == "case.completed"
    assert event["data"]["case_id"] == case["case_id"]
    assert event["data"]["client_reference"] == "order-17"
    assert event["data"]["outcome"] == case["result"]["outcome"]


def test_the_links_of_a_callback_lead_to_the_result(door: Door, receiver: Receiver, studies: Sequence[bytes]) -> None:
    endpoint_id, _ = add_endpoint(door, receiver)

    case = door.answered(studies[0], fields={"webhook_endpoint_id": endpoint_id})

    (delivery,) = receiver.wait_for(1)
    result = door.http.get(json.loads(delivery.body)["data"]["links"]["result"])
    assert result.json() == case["result"]


def test_a_callback_is_delivered_once_where_the_receiver_takes_it(door: Door, receiver: Receiver, studies: Sequence[bytes]) -> None:
    endpoint_id, _ = add_endpoint(door, receiver)

    case = door.answered(studies[0], fields={"webhook_endpoint_id": endpoint_id})

    (told,) = deliveries_of(door, case, "delivered")
    assert (told["attempts"], told["status_code"], told["next_attempt_at"]) == (1, 200, None)
    (delivery,) = receiver.got
    assert delivery.message_id == told["event_id"]


def test_a_callback_comes_again_under_the_same_id_where_the_receiver_stumbled(door: Door, studies: Sequence[bytes]) -> None:
    with running_receiver(500) as receiver:
        endpoint_id, secret = add_endpoint(door, receiver)
        case = door.answered(studies[0], fields={"webhook_endpoint_id": endpoint_id})
        first, second = receiver.wait_for(2)
        (told,) = deliveries_of(door, case, "delivered")

    assert first.message_id == second.message_id == told["event_id"]
    assert first.body == second.body
    assert Webhook(secret).verify(second.body, second.headers)["type"] == "case.completed"
    assert (told["attempts"], told["status_code"]) == (2, 200)


def test_a_case_that_fails_is_told_too(door: Door, receiver: Receiver) -> None:
    endpoint_id, secret = add_endpoint(door, receiver)

    case = door.answered(b"no image at all", fields={"webhook_endpoint_id": endpoint_id})

    (delivery,) = receiver.wait_for(1)
    event = Webhook(secret).verify(delivery.body, delivery.headers)
    assert (event["type"], event["data"]["status"]) == ("case.failed", "failed")
    assert event["data"]["case_id"] == case["case_id"]


def test_a_callback_holds_no_patient(door: Door, receiver: Receiver, image_of_a_patient: bytes) -> None:
    endpoint_id, _ = add_endpoint(door, receiver)

    door.answered(image_of_a_patient, fields={"webhook_endpoint_id": endpoint_id})

    (delivery,) = receiver.wait_for(1)
    text = delivery.body.decode() + json.dumps(delivery.headers)
    assert not [value for value in PATIENT if value.lower() in text.lower()]
    assert len(delivery.body) < MOST_BYTES


def test_a_receiver_that_hangs_delays_neither_readings_nor_other_receivers(
    door: Door, receiver: Receiver, studies: Sequence[bytes]
) -> None:
    with running_receiver(is_slow=True) as hanging:
        slow_id, _ = add_endpoint(door, hanging)
        door.answered(studies[0], fields={"webhook_endpoint_id": slow_id})
        hanging.wait_for(1)

        quick_id, _ = add_endpoint(door, receiver)
        case = door.answered(studies[1], fields={"webhook_endpoint_id": quick_id})
        deliveries_of(door, case, "delivered")

        assert not hanging.released.is_set()
    assert len(receiver.got) == 1


def test_an_endpoint_that_was_removed_cannot_be_named_any_more(door: Door, receiver: Receiver, studies: Sequence[bytes]) -> None:
    endpoint_id, _ = add_endpoint(door, receiver)

    assert door.http.delete(f"/v1/webhook-endpoints/{endpoint_id}").status_code == 204

    refused = door.submit(studies[0], fields={"webhook_endpoint_id": endpoint_id})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid")
    assert door.http.get(f"/v1/webhook-endpoints/{endpoint_id}").status_code == 404


def test_the_secret_is_shown_once(door: Door, receiver: Receiver) -> None:
    endpoint_id, secret = add_endpoint(door, receiver)

    shown = door.http.get(f"/v1/webhook-endpoints/{endpoint_id}")

    assert secret not in shown.text
    assert shown.json()["url"] == receiver.url


@pytest.mark.parametrize("url", ["http://169.254.169.254/latest", "http://10.1.2.3/hook", "ftp://127.0.0.1/hook", "http://127.0.0.1:6379/"])
def test_callbacks_go_only_where_the_operator_lets_them(door: Door, url: str) -> None:
    refused = door.http.post("/v1/webhook-endpoints", json={"url": url})

    assert (refused.status_code, refused.json()["code"]) == (422, "endpoint-forbidden")
    assert url not in refused.text
