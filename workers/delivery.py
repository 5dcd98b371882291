"""The delivery pool: callbacks, apart from everything else, so that a slow receiver delays no reading."""

import random
from uuid import UUID

from celery import Celery

from pipeline import flow
from pipeline.callbacks.client import WebhookClient
from pipeline.errors import LedgerUnavailable
from pipeline.flow import Pool
from pipeline.observability import metrics
from pipeline.observability.log import about_case, logger
from pipeline.persistence.ledger.deliveries import claim_delivery, disable_endpoint, record_delivery
from pipeline.stages.deliver import OUTCOMES_THAT_DISABLE, deliver
from workers.pool_process import pool_runtime, serve
from workers.settings import Settings
from workers.stage_task import PoolRuntime
from workers.wiring import webhook_policy


def register(app: Celery, runtime: PoolRuntime, client: WebhookClient) -> None:
    """Give the pool its task."""

    def deliver_event(delivery_id: str) -> None:
        """Tell one endpoint about one event."""
        try:
            deliver_one(runtime, client, UUID(hex=delivery_id))
        except LedgerUnavailable as error:
            logger().warning("delivery_waits", code=error.code)

    app.task(name=flow.doorbell_of(Pool.DELIVERY))(deliver_event)


def deliver_one(runtime: PoolRuntime, client: WebhookClient, delivery_id: UUID) -> None:
    """Claim, send, record; nothing to claim means that somebody else has done it."""
    ledger = runtime.services.ledger
    delivery = claim_delivery(ledger, delivery_id)
    if delivery is None:
        return
    with about_case(delivery.case_id, stage=flow.DELIVER.name, delivery_id=delivery_id.hex, endpoint_id=delivery.endpoint.id.hex):
        record = deliver(delivery, client=client, clock=runtime.services.clock.now, jitter=random.random)
        metrics.CALLBACK_ATTEMPTS.labels(record.outcome).inc()
        record_delivery(ledger, delivery_id, delivery.attempt, record)
        if record.outcome in OUTCOMES_THAT_DISABLE:
            disable_endpoint(ledger, delivery.endpoint.id, code=record.outcome)
        logger().info("delivery_attempted", outcome=record.outcome, status=record.status_code, attempt=delivery.attempt, state=record.state)


def main() -> None:
    """Run the pool: `python -m workers.delivery`."""
    settings = Settings()
    with pool_runtime(Pool.DELIVERY, settings, connections=4) as runtime:
        register(runtime.app, runtime, WebhookClient(webhook_policy(settings), now=runtime.services.clock.now))
        serve(runtime, threads=settings.delivery_threads)


if __name__ == "__main__":
    main()
