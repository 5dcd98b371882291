"""Structured logs: one event, one short name, facts as keys; the case id is bound once a message."""

import logging
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal
from uuid import UUID

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger


def frames_only(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Write an exception as its type and the places it passed, without its message: a library's may quote a patient."""
    info = event.pop("exc_info", None)
    if info is True:
        info = sys.exc_info()
    error = info[1] if isinstance(info, tuple) else info
    if isinstance(error, BaseException):
        event["error"] = type(error).__name__
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if "site-packages" not in frame.filename]
        event["frames"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in [*ours[-6:], *frames[-1:]]]
    return event


SHARED: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def configure_logs(*, level: str, style: Literal["json", "console"], process: str) -> None:
    """Send everything, the libraries' logs too, to stderr in one form.

    Libraries speak from `warning` on: their information lines repeat what our events say.
    """
    renderer: Processor = (
        structlog.processors.JSONRenderer() if style == "json" else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *SHARED,
            frames_only,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*SHARED, frames_only],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("secondread").setLevel(level.upper())
    structlog.contextvars.bind_contextvars(process=process)


def logger() -> structlog.stdlib.BoundLogger:
    """The product's logger."""
    bound: structlog.stdlib.BoundLogger = structlog.get_logger("secondread")
    return bound


@contextmanager
def about_case(case_id: UUID, **facts: object) -> Iterator[None]:
    """Bind the case id (and the like) to every event inside."""
    with structlog.contextvars.bound_contextvars(case_id=case_id.hex, **facts):
        yield
