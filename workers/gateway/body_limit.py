"""The largest request body: by its stated length before anything is read, by counting where none is stated.

Starlette's own limit answers in plain text, and puts that in the place of our answer.
"""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from workers.gateway.problems import Refused, problem_response


class BodyLimit:
    """Middleware that refuses bodies beyond the limit with the code `too-large`."""

    def __init__(self, app: ASGIApp, limit_bytes: int) -> None:
        self._app, self._limit_bytes = app, limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count what is read of its body."""
        taken_bytes = 0

        async def counted() -> Message:
            nonlocal taken_bytes
            message = await receive()
            taken_bytes += len(message.get("body", b""))
            if taken_bytes > self._limit_bytes:
                raise Refused("too-large", self._detail)
            return message

        if scope["type"] == "http" and self._is_stated_too_large(scope):
            await problem_response("too-large", self._detail)(scope, receive, send)
        else:
            await self._app(scope, counted if scope["type"] == "http" else receive, send)

    @property
    def _detail(self) -> str:
        return f"a body may have {self._limit_bytes} bytes"

    def _is_stated_too_large(self, scope: Scope) -> bool:
        stated = Headers(scope=scope).get("content-length", "")
        return stated.isdecimal() and int(stated) > self._limit_bytes
