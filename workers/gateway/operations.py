"""/livez, /readyz and /metrics, on a port of their own that stays inside the house."""

from fastapi import FastAPI, Response
from fastapi.concurrency import run_in_threadpool
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from pipeline.errors import LedgerUnavailable
from pipeline.persistence.ledger.sweep import last_event_id
from workers.wiring import Services


def make_operations(services: Services) -> FastAPI:
    """Build the operator's side of the door."""
    app = FastAPI(title="secondread operations", openapi_url=None)

    @app.get("/livez")
    async def livez() -> dict[str, str]:
        """Answer as long as the event loop turns; nothing else is asked."""
        return {"status": "alive"}

    @app.get("/readyz")
    async def readyz() -> Response:
        """Ready while the ledger answers. Redis alone makes no gateway unready: cases are accepted without it."""
        try:
            await run_in_threadpool(last_event_id, services.ledger)
        except LedgerUnavailable:
            return Response('{"status": "ledger-unavailable"}', status_code=503, media_type="application/json")
        return Response('{"status": "ready"}', media_type="application/json")

    @app.get("/metrics")
    async def metrics() -> Response:
        """Metrics of all processes of this host, for Prometheus."""
        return Response(await run_in_threadpool(_collect, services), media_type=CONTENT_TYPE_LATEST)

    return app


def _collect(services: Services) -> bytes:
    folder = services.settings.metrics_dir
    if folder is None:
        text: bytes = generate_latest(REGISTRY)
        return text
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(folder))  # type: ignore[no-untyped-call]
    added_up: bytes = generate_latest(registry)
    return added_up
