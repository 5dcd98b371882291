"""How a reply is read; what the network does to an attempt is in the integration tests."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.callbacks.client import DeliveryOutcome, DeliveryResult, result_of, retry_after_s

CLASSES = {
    DeliveryResult.DELIVERED: [200, 201, 202, 204, 299],
    DeliveryResult.GONE: [410],
    DeliveryResult.THROTTLED: [429, 502, 503, 504],
    DeliveryResult.REFUSED: [101, 300, 301, 302, 303, 307, 308, 400, 401, 404, 409, 411, 422, 451, 500, 501, 505, 599],
}


@pytest.mark.parametrize(("status_code", "result"), [(code, result) for result, codes in CLASSES.items() for code in codes])
def test_the_status_alone_classes_a_reply(status_code: int, result: DeliveryResult) -> None:
    assert result_of(status_code) is result


@pytest.mark.parametrize(
    ("value", "expected_s"),
    [
        ("20", 20.0),
        (" 0 ", 0.0),
        ("3600", 3600.0),
        ("999999999", 3600.0),
        ("Fri, 02 Jan 2026 12:02:00 GMT", 120.0),
        ("Fri, 02 Jan 2026 12:02:00 -0000", 120.0),
        ("Fri, 02 Jan 2026 13:02:00 +0100", 120.0),
        ("Fri, 02 Jan 2026 11:00:00 GMT", 0.0),
        ("Sat, 03 Jan 2026 12:00:00 GMT", 3600.0),
        (None, None),
        ("", None),
        ("-5", None),
        ("1.5", None),
        ("soon", None),
        ("9" * 5000, None),
        ("\u0662\u0660", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_a_date_up_to_an_hour(noon: datetime, value: str | None, expected_s: float | None) -> None:
    assert retry_after_s(value, now=noon) == expected_s


@given(st.text() | st.from_regex(r"[A-Z][a-z]{2}, \d{1,3} [A-Z][a-z]{2} \d{1,6} \d{1,3}:\d{1,3}:\d{1,3} ([+-]\d{1,6}|GMT)"))
def test_no_retry_after_can_break_the_sender(value: str) -> None:
    waited_s = retry_after_s(value, now=datetime.fromisoformat("2026-01-02T12:00:00Z"))

    assert waited_s is None or 0.0 <= waited_s <= 3600.0


def test_only_what_may_end_otherwise_is_tried_again() -> None:
    retried = {result for result in DeliveryResult if DeliveryOutcome(result, duration_s=0.1).may_be_retried}

    assert retried == {DeliveryResult.THROTTLED, DeliveryResult.REFUSED, DeliveryResult.UNREACHABLE}
