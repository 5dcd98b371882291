from datetime import UTC, datetime, timedelta

import pytest
from standardwebhooks import Webhook

from workers.client import CALLBACK_TOLERANCE_S, BadSignature, verify_callback

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER_SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
BODY = b'{"type": "case.completed"}'


def headers_of(secret: str, *, at: datetime = NOON, body: bytes = BODY) -> dict[str, str]:
    """As the reference implementation of Standard Webhooks signs."""
    return {
        "Webhook-Id": "evt_1",
        "Webhook-Timestamp": str(int(at.timestamp())),
        "Webhook-Signature": Webhook(secret).sign("evt_1", at, body.decode()),
    }


def test_what_the_reference_implementation_signs_is_taken() -> None:
    assert verify_callback(SECRET, headers_of(SECRET), BODY, now=NOON) == "evt_1"


def test_one_fitting_signature_among_several_suffices() -> None:
    headers = headers_of(OTHER_SECRET)
    headers["Webhook-Signature"] += " " + headers_of(SECRET)["Webhook-Signature"]
    assert verify_callback(SECRET, headers, BODY, now=NOON) == "evt_1"


@pytest.mark.parametrize("age_s", [-CALLBACK_TOLERANCE_S, CALLBACK_TOLERANCE_S])
def test_five_minutes_off_are_tolerated(age_s: float) -> None:
    headers = headers_of(SECRET, at=NOON - timedelta(seconds=age_s))
    assert verify_callback(SECRET, headers, BODY, now=NOON)


@pytest.mark.parametrize("age_s", [-CALLBACK_TOLERANCE_S - 1, CALLBACK_TOLERANCE_S + 1])
def test_more_than_five_minutes_off_is_a_replay(age_s: float) -> None:
    headers = headers_of(SECRET, at=NOON - timedelta(seconds=age_s))
    with pytest.raises(BadSignature):
        verify_callback(SECRET, headers, BODY, now=NOON)


def test_a_body_that_was_changed_is_refused() -> None:
    with pytest.raises(BadSignature):
        verify_callback(SECRET, headers_of(SECRET), BODY + b" ", now=NOON)


def test_another_secret_is_refused() -> None:
    with pytest.raises(BadSignature):
        verify_callback(SECRET, headers_of(OTHER_SECRET), BODY, now=NOON)


@pytest.mark.parametrize("absent", ["Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"])
def test_a_missing_header_is_refused(absent: str) -> None:
    headers = headers_of(SECRET)
    del headers[absent]
    with pytest.raises(BadSignature):
        verify_callback(SECRET, headers, BODY, now=NOON)


@pytest.mark.parametrize("timestamp", ["", "noon", "1e9999", "nan"])
def test_a_time_that_is_none_is_refused(timestamp: str) -> None:
    with pytest.raises(BadSignature):
        verify_callback(SECRET, headers_of(SECRET) | {"Webhook-Timestamp": timestamp}, BODY, now=NOON)


@pytest.mark.parametrize("signature", ["", "v1", "v1,", "v2,abc", "v1,üöä"])
def test_a_signature_that_is_none_is_refused(signature: str) -> None:
    with pytest.raises(BadSignature):
        verify_callback(SECRET, headers_of(SECRET) | {"Webhook-Signature": signature}, BODY, now=NOON)
