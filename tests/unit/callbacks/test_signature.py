"""Signatures, verified by the reference library of Standard Webhooks."""

import base64
from datetime import UTC, datetime, timedelta

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from pipeline.callbacks.signature import new_secret, sign
from pipeline.deadline import utc_now

BODY = b'{"type":"case.completed","data":{"client_reference":"\xc3\xa4"}}'
MESSAGE = "evt_01970000000070008000000000000001"


def test_a_new_secret_is_32_random_bytes_behind_its_prefix() -> None:
    first, second = new_secret(), new_secret()

    assert first.startswith("whsec_")
    assert len(base64.b64decode(first.removeprefix("whsec_"))) == 32
    assert first != second


def test_the_specification_s_own_example_verifies() -> None:
    # From the reference implementations' test suites: secret, id, time, body and signature are theirs.
    headers = sign(
        ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
        message_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        at=datetime.fromtimestamp(1614265330, tz=UTC),
        body=b'{"test": 2432232314}',
    )

    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_a_receiver_with_the_secret_accepts() -> None:
    secret = new_secret()

    headers = sign([secret], message_id=MESSAGE, at=utc_now(), body=BODY)

    assert Webhook(secret).verify(BODY, headers)["type"] == "case.completed"


def test_while_a_secret_rotates_either_one_verifies() -> None:
    old, new = new_secret(), new_secret()

    headers = sign([new, old], message_id=MESSAGE, at=utc_now(), body=BODY)

    for secret in (old, new):
        Webhook(secret).verify(BODY, headers)


def test_a_receiver_with_another_secret_refuses() -> None:
    headers = sign([new_secret()], message_id=MESSAGE, at=utc_now(), body=BODY)

    with pytest.raises(WebhookVerificationError):
        Webhook(new_secret()).verify(BODY, headers)


def test_a_tampered_body_is_refused() -> None:
    secret = new_secret()
    headers = sign([secret], message_id=MESSAGE, at=utc_now(), body=BODY)

    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(BODY.replace(b"completed", b"cancelled"), headers)


@pytest.mark.parametrize(
    "changed", [{"webhook-id": "evt_other"}, {"webhook-timestamp": str(int(utc_now().timestamp()) - 60)}, {"webhook-signature": "v1,AAAA"}]
)
def test_a_tampered_header_is_refused(changed: dict[str, str]) -> None:
    secret = new_secret()
    headers = sign([secret], message_id=MESSAGE, at=utc_now(), body=BODY)

    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(BODY, headers | changed)


def test_a_message_that_is_301_s_old_is_refused_although_rightly_signed() -> None:
    secret = new_secret()
    headers = sign([secret], message_id=MESSAGE, at=utc_now() - timedelta(seconds=301), body=BODY)

    with pytest.raises(WebhookVerificationError, match="too old"):
        Webhook(secret).verify(BODY, headers)


@pytest.mark.parametrize(
    ("secrets", "message_id"),
    [([], MESSAGE), ([new_secret()], ""), ([new_secret()], "evt.1"), (["c2VjcmV0"], MESSAGE), (["whsec_not base64"], MESSAGE)],
)
def test_what_cannot_be_signed_soundly_is_refused(secrets: list[str], message_id: str) -> None:
    with pytest.raises(ValueError, match=r"secret|base64|padding|Non-base64|alphabet"):
        sign(secrets, message_id=message_id, at=utc_now(), body=BODY)


def test_an_error_never_repeats_the_secret() -> None:
    with pytest.raises(ValueError, match="whsec_") as refused:
        sign(["hunter2"], message_id=MESSAGE, at=utc_now(), body=BODY)

    assert "hunter2" not in str(refused.value)
