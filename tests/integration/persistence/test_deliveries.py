"""What endpoints are owed: claimed once, in due order, logged, and dropped where nobody wants it any more."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import exc, text

from pipeline.deadline import utc_now
from pipeline.flow import Pool
from pipeline.persistence.ledger.claims import Claimed
from pipeline.persistence.ledger.deliveries import (
    DELIVERY_LEASE_S,
    DeliveryRecord,
    Endpoint,
    claim_delivery,
    deliveries_of,
    disable_endpoint,
    due_deliveries,
    find_endpoint,
    record_delivery,
)
from pipeline.persistence.ledger.engine import Ledger, run
from pipeline.persistence.ledger.outcomes import Answer, Callback, Ownership
from tests.integration.persistence.singly import complete_case

pytestmark = pytest.mark.services

Cases = Any
"""The factory of `conftest.py`."""
DELIVERED = DeliveryRecord(state="delivered", outcome="delivered", status_code=204, duration_ms=12)


@pytest.fixture
def owed(
    ledger: Ledger,
    cases: Cases,
    owner: Callable[[Claimed], Ownership],
    answer: Callable[[Claimed, int], Answer],
    callback: Callable[[], Callback],
) -> Callable[[], UUID]:
    """Ends a case and gives the id of the event that its endpoint is owed."""

    def end() -> UUID:
        case, event = cases.claimed(Pool.REPORTING), callback()
        complete_case(ledger, owner(case), answer(case, 1), timeline={}, callback=event)
        return event.event_id

    return end


def row_of(ledger: Ledger, delivery_id: UUID) -> Any:
    (row,) = run(ledger.durable, text("SELECT * FROM deliveries WHERE id = :id"), id=delivery_id)
    return row


def postpone(ledger: Ledger, delivery_id: UUID, *, seconds: float) -> None:
    statement = text("UPDATE deliveries SET due_at = clock_timestamp() + make_interval(secs => :seconds) WHERE id = :id")
    run(ledger.durable, statement, id=delivery_id, seconds=seconds)


def lapse(ledger: Ledger, delivery_id: UUID) -> None:
    run(
        ledger.durable,
        text("UPDATE deliveries SET lease_until = clock_timestamp() - interval '1 millisecond' WHERE id = :id"),
        id=delivery_id,
    )


def test_a_claim_brings_the_body_and_where_to_send_it(ledger: Ledger, owed: Callable[[], UUID], endpoint: Endpoint) -> None:
    delivery_id = owed()

    claimed = claim_delivery(ledger, delivery_id)

    assert claimed is not None
    assert (claimed.id, claimed.attempt, claimed.event_type, claimed.body) == (
        delivery_id,
        1,
        "case.completed",
        '{"type": "case.completed"}',
    )
    assert claimed.endpoint == endpoint
    left_s = (row_of(ledger, delivery_id).lease_until - utc_now()).total_seconds()
    assert DELIVERY_LEASE_S - 2 < left_s <= DELIVERY_LEASE_S


def test_of_eight_threads_one_gets_each_event(ledger: Ledger, owed: Callable[[], UUID]) -> None:
    delivery_ids = [owed() for _ in range(20)]

    with ThreadPoolExecutor(8) as pool:
        claimed = [got.id for got in pool.map(lambda each: claim_delivery(ledger, each), delivery_ids * 8) if got]

    assert sorted(claimed) == sorted(delivery_ids)


def test_an_unknown_event_is_not_claimed(ledger: Ledger) -> None:
    assert claim_delivery(ledger, uuid4()) is None


def test_due_events_come_oldest_first_and_the_others_not_at_all(ledger: Ledger, owed: Callable[[], UUID]) -> None:
    first, second, third, later, held, done = (owed() for _ in range(6))
    for delivery_id, seconds in ((first, -30), (second, -20), (third, -10), (later, 60)):
        postpone(ledger, delivery_id, seconds=seconds)
    claim_delivery(ledger, held)
    claim_delivery(ledger, done)
    record_delivery(ledger, done, 1, DELIVERED)

    assert due_deliveries(ledger, limit=10) == [first, second, third]
    assert due_deliveries(ledger, limit=2) == [first, second]
    assert claim_delivery(ledger, later) is None


def test_a_delivered_event_is_done_for_good(ledger: Ledger, owed: Callable[[], UUID]) -> None:
    delivery_id = owed()
    claim_delivery(ledger, delivery_id)

    record_delivery(ledger, delivery_id, 1, DELIVERED)

    row = row_of(ledger, delivery_id)
    assert (row.state, row.attempt, row.lease_until) == ("delivered", 1, None)
    assert row.ended_at is not None
    assert (claim_delivery(ledger, delivery_id), due_deliveries(ledger, limit=10)) == (None, [])


def test_a_failed_attempt_is_due_again_when_its_schedule_says(ledger: Ledger, owed: Callable[[], UUID]) -> None:
    delivery_id, due_at = owed(), utc_now().replace(microsecond=0) + timedelta(seconds=30)
    claim_delivery(ledger, delivery_id)

    record_delivery(ledger, delivery_id, 1, DeliveryRecord("pending", "server-error", 503, 40, due_at))

    row = row_of(ledger, delivery_id)
    assert (row.state, row.due_at, row.ended_at, row.lease_until) == ("pending", due_at, None, None)
    assert claim_delivery(ledger, delivery_id) is None
    postpone(ledger, delivery_id, seconds=-1)
    again = claim_delivery(ledger, delivery_id)
    assert again is not None
    assert again.attempt == 2


def test_a_dead_event_is_not_tried_again(ledger: Ledger, owed: Callable[[], UUID]) -> None:
    delivery_id = owed()
    claim_delivery(ledger, delivery_id)

    record_delivery(ledger, delivery_id, 1, DeliveryRecord("dead", "refused", None, 3))

    assert row_of(ledger, delivery_id).state == "dead"
    assert (claim_delivery(ledger, delivery_id), due_deliveries(ledger, limit=10)) == (None, [])


def test_a_lapsed_delivery_is_due_again_and_its_first_worker_writes_nothing(ledger: Ledger, owed: Callable[[], UUID]) -> None:
    delivery_id = owed()
    claim_delivery(ledger, delivery_id)
    lapse(ledger, delivery_id)
    assert due_deliveries(ledger, limit=10) == [delivery_id]
    second = claim_delivery(ledger, delivery_id)

    record_delivery(ledger, delivery_id, 1, DELIVERED)

    assert second is not None
    assert (second.attempt, row_of(ledger, delivery_id).state) == (2, "pending")
    assert run(ledger.durable, text("SELECT * FROM delivery_attempts")) == []


def test_every_attempt_is_in_the_log(ledger: Ledger, owed: Callable[[], UUID]) -> None:
    delivery_id = owed()
    claim_delivery(ledger, delivery_id)
    record_delivery(ledger, delivery_id, 1, DeliveryRecord("pending", "timeout", None, 15_000, utc_now() - timedelta(seconds=1)))
    claim_delivery(ledger, delivery_id)
    record_delivery(ledger, delivery_id, 2, DELIVERED)

    rows = run(ledger.durable, text("SELECT * FROM delivery_attempts ORDER BY attempt"))
    assert [(row.attempt, row.outcome, row.status_code, row.duration_ms) for row in rows] == [
        (1, "timeout", None, 15_000),
        (2, "delivered", 204, 12),
    ]
    case_id: UUID = row_of(ledger, delivery_id).case_id
    (shown,) = deliveries_of(ledger, case_id)
    assert (shown.id, shown.state, shown.attempt, shown.outcome, shown.status_code) == (delivery_id, "delivered", 2, "delivered", 204)


def test_an_event_that_was_never_tried_has_no_outcome_yet(ledger: Ledger, owed: Callable[[], UUID]) -> None:
    case_id: UUID = row_of(ledger, owed()).case_id

    (shown,) = deliveries_of(ledger, case_id)

    assert (shown.state, shown.attempt, shown.outcome, shown.at) == ("pending", 0, None, None)


def test_an_endpoint_is_its_tenants_until_it_is_disabled(ledger: Ledger, endpoint: Endpoint) -> None:
    assert find_endpoint(ledger, endpoint.id, tenant_id=endpoint.tenant_id) == endpoint
    assert find_endpoint(ledger, endpoint.id, tenant_id=UUID(int=2)) is None

    disable_endpoint(ledger, endpoint.id, code="gone")

    assert find_endpoint(ledger, endpoint.id, tenant_id=endpoint.tenant_id) is None


def test_what_a_disabled_endpoint_is_owed_is_dropped_and_not_rung_again(
    ledger: Ledger, owed: Callable[[], UUID], endpoint: Endpoint
) -> None:
    before = owed()
    disable_endpoint(ledger, endpoint.id, code="gone")
    after = owed()

    assert [claim_delivery(ledger, delivery_id) for delivery_id in (before, after)] == [None, None]

    rows = [row_of(ledger, delivery_id) for delivery_id in (before, after)]
    assert [(row.state, row.attempt, row.lease_until) for row in rows] == [("dropped", 0, None)] * 2
    assert all(isinstance(row.ended_at, datetime) for row in rows)
    assert due_deliveries(ledger, limit=10) == []


def test_no_state_but_the_four_can_be_written(ledger: Ledger, owed: Callable[[], UUID]) -> None:
    delivery_id = owed()
    claim_delivery(ledger, delivery_id)

    with pytest.raises(exc.IntegrityError, match="deliveries_state"):
        record_delivery(ledger, delivery_id, 1, DeliveryRecord("lost", "x", None, 1))
