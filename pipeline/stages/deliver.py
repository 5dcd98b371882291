"""Stage 7: tell a webhook endpoint, and decide what follows from its answer."""

from collections.abc import Callable
from datetime import datetime

from pipeline.callbacks.client import DeliveryOutcome, DeliveryResult, WebhookClient
from pipeline.callbacks.schedule import next_attempt_at
from pipeline.callbacks.signature import sign
from pipeline.persistence.ledger.deliveries import ClaimedDelivery, DeliveryRecord
from schemas.identifiers import public_id

OUTCOMES_THAT_DISABLE = frozenset({DeliveryResult.GONE.value})
"""The endpoint has said that it wants no more."""


def deliver(
    delivery: ClaimedDelivery, *, client: WebhookClient, clock: Callable[[], datetime], jitter: Callable[[], float]
) -> DeliveryRecord:
    """Sign and send one event; never raises for what the receiver does.

    The record says what came of it: delivered, dead, or pending with the moment of the next attempt.
    """
    body = delivery.body.encode()
    headers = sign(delivery.endpoint.secrets, message_id=public_id("evt", delivery.id), at=clock(), body=body)
    outcome = client.deliver(delivery.endpoint.url, headers, body)
    due_at = None
    if outcome.may_be_retried:
        due_at = next_attempt_at(delivery.attempt, now=clock(), jitter=jitter, retry_after_s=outcome.retry_after_s)
    return DeliveryRecord(
        state=_next_state(outcome, due_at),
        outcome=outcome.reason or outcome.result.value,
        status_code=outcome.status_code,
        duration_ms=round(outcome.duration_s * 1000),
        due_at=due_at,
    )


def _next_state(outcome: DeliveryOutcome, due_at: datetime | None) -> str:
    if outcome.result is DeliveryResult.DELIVERED:
        return "delivered"
    return "pending" if due_at is not None else "dead"
