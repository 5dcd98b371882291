"""The gateway's application and its process."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Iterator
from functools import partial

import uvicorn
import uvloop
from fastapi import FastAPI

from pipeline.observability.log import configure_logs, logger
from schemas.message import MOST_CASES
from workers.app import make_app
from workers.gateway import cases, compensation, endpoints, pictures, problems
from workers.gateway.admission import admit
from workers.gateway.answers import AnswerBell
from workers.gateway.body_limit import BodyLimit
from workers.gateway.door import Door
from workers.gateway.keys import KeyRing
from workers.gateway.operations import make_operations
from workers.group_commit import GroupCommit
from workers.messenger import Messenger
from workers.pool_process import say_ready
from workers.settings import Settings
from workers.version import PRODUCT_VERSION
from workers.wiring import Services, open_services, secret_of

DRAIN_S = 5
REDIS_TIMEOUT_S = 0.5
"""A client waits here: of Redis the door only asks to take a case out of line, which can be left undone."""
DESCRIPTION = """Submit DICOM images, get a second reading within the deadline.

Every refusal is `application/problem+json` with a `code` of a closed list. All times are RFC 3339 in UTC."""


def make_gateway(services: Services) -> FastAPI:
    """Build the HTTP door."""
    bell = AnswerBell(secret_of(services.settings, "database_url"), services.ledger)
    publisher = Messenger(make_app(services.settings))

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        bell.start(asyncio.get_running_loop())
        yield
        bell.close()
        publisher.close()

    app = FastAPI(
        title="secondread",
        version=PRODUCT_VERSION,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url="/docs",
        redoc_url=None,
        responses={"default": {"description": "A problem", "content": {"application/problem+json": {}}}},
    )
    admissions = GroupCommit(partial(admit, services.ledger, publisher), most=MOST_CASES)
    app.state.door = Door(services, publisher, KeyRing(services.ledger), bell, admissions)
    app.include_router(cases.router)
    app.include_router(pictures.router)
    app.include_router(compensation.router)
    app.include_router(endpoints.router)
    problems.install(app)
    app.add_middleware(BodyLimit, limit_bytes=services.settings.max_body_bytes)
    return app


class _Server(uvicorn.Server):
    """A server that leaves the signals to us: two of them share one loop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _server(app: FastAPI, host: str, port: int) -> _Server:
    return _Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            http="httptools",
            log_config=None,
            access_log=False,
            server_header=False,
            # We write no client address anywhere, so a proxy's word for it is not read.
            proxy_headers=False,
            timeout_graceful_shutdown=DRAIN_S,
            # Idle sockets are closed; a hospital's proxy opens new ones.
            timeout_keep_alive=30,
        )
    )


async def serve(services: Services) -> None:
    """Run the door and the operator's port until SIGTERM."""
    settings = services.settings
    door = _server(make_gateway(services), settings.gateway_host, settings.gateway_port)
    inside = _server(make_operations(services), settings.gateway_host, settings.metrics_port)

    def stop() -> None:
        door.should_exit = inside.should_exit = True

    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop)
    running = [asyncio.create_task(server.serve()) for server in (door, inside)]
    while not (door.started and inside.started) and not any(task.done() for task in running):
        await asyncio.sleep(0.02)
    say_ready(settings)
    logger().info("gateway_ready", host=settings.gateway_host, port=settings.gateway_port, metrics_port=settings.metrics_port)
    await asyncio.gather(*running)


def main() -> None:
    """Run the gateway: `python -m workers.gateway`."""
    settings = Settings()
    configure_logs(level=settings.log_level, style=settings.log_format, process="gateway")
    with (
        open_services(settings, role="gateway", connections=10, redis_timeout_s=REDIS_TIMEOUT_S) as services,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(serve(services))
