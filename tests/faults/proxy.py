"""A TCP proxy that misbehaves on demand: between a process and its server stands one of these, and the test turns the knob.

It lives in a thread with an event loop of its own. A change of manner holds for live connections at once, both ways.
"""

import asyncio
import socket
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, TypeVar

CHUNK_BYTES = 65_536
LOOK_EVERY_S = 0.01
STOP_LIMIT_S = 5.0

Given = TypeVar("Given")


class Fault(Enum):
    """What happens to bytes on their way."""

    PASS = auto()
    SWALLOW = auto()
    """Read and thrown away; the connection stays open, and new ones are taken: half-open, as behind a firewall that forgot a flow."""
    CUT = auto()
    """After `cut_after_bytes` towards one side, both sides are reset."""
    DRIP = auto()
    """So many bytes a second."""
    REFUSE = auto()
    """New connections are reset; live ones pass."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How the proxy behaves now."""

    fault: Fault = Fault.PASS
    delay_s: float = 0.0
    """How much later each byte arrives."""
    cut_after_bytes: int = 0
    drip_bytes_s: float = 1.0


@dataclass(eq=False, slots=True)
class _Link:
    """One connection and its twin on the server's side."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter | None = None
    is_deaf: bool = False
    """Bytes of it were swallowed: a stream with a hole is never resumed."""
    sent: dict[str, int] = field(default_factory=lambda: {"up": 0, "down": 0})

    def reset(self) -> None:
        """Close both sides at once, with RST: no goodbye."""
        for writer in (self.client, self.server):
            if writer is not None:
                sock = writer.get_extra_info("socket")
                with suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                writer.transport.abort()


class FaultProxy:
    """Listens on a free port of the loopback and stands for `host:port`."""

    def __init__(self, port: int, *, host: str = "127.0.0.1") -> None:
        self._target = (host, port)
        self._manner = Manner()
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxy", daemon=True)
        self._thread.start()
        self._server = self._call(self._listen())
        self.port: int = self._server.sockets[0].getsockname()[1]

    def behave(self, fault: Fault = Fault.PASS, *, delay_s: float = 0.0, cut_after_bytes: int = 0, drip_bytes_s: float = 1.0) -> None:
        """Behave so from now on. Connections whose bytes were swallowed stay deaf whatever follows; new ones are as good as the manner."""
        manner = Manner(fault, delay_s, cut_after_bytes, drip_bytes_s)

        async def change() -> None:
            self._manner = manner
            if fault is Fault.SWALLOW:
                for link in self._links:
                    link.is_deaf = True
            for link in self._links:
                link.sent = {"up": 0, "down": 0}

        self._call(change())

    def cut_all(self) -> int:
        """Reset every live connection; return how many there were."""

        async def cut() -> int:
            links = tuple(self._links)
            for link in links:
                link.reset()
            return len(links)

        return self._call(cut())

    @property
    def connection_count(self) -> int:
        """Connections that are open now."""
        return len(self._links)

    def close(self) -> None:
        """Close every connection and the door."""

        async def stop() -> None:
            self._server.close()
            for link in tuple(self._links):
                link.reset()
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        self._call(stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_LIMIT_S)
        self._loop.close()

    def _call(self, coroutine: Coroutine[Any, Any, Given]) -> Given:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(STOP_LIMIT_S)

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        link = _Link(writer, is_deaf=self._manner.fault is Fault.SWALLOW)
        if self._manner.fault is Fault.REFUSE:
            link.reset()
            return
        self._links.add(link)
        try:
            await self._serve(link, reader)
        finally:
            self._links.discard(link)
            link.reset()

    async def _serve(self, link: _Link, reader: asyncio.StreamReader) -> None:
        if link.is_deaf:
            # The server never hears of this one.
            await self._swallow(reader)
            return
        try:
            from_server, link.server = await asyncio.open_connection(*self._target)
        except OSError:
            return
        up = asyncio.create_task(self._pump(link, "up", reader, link.server))
        down = asyncio.create_task(self._pump(link, "down", from_server, link.client))
        try:
            await asyncio.gather(up, down)
        except OSError:
            return
        finally:
            up.cancel()
            down.cancel()
            await asyncio.gather(up, down, return_exceptions=True)

    async def _swallow(self, reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while await reader.read(CHUNK_BYTES):
                pass

    async def _pump(self, link: _Link, way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry bytes one way until their source ends; the end is passed on as they were."""
        while data := await reader.read(CHUNK_BYTES):
            await self._carry(link, way, data, writer)
        if not link.is_deaf and writer.can_write_eof():
            writer.write_eof()

    async def _carry(self, link: _Link, way: str, data: bytes, writer: asyncio.StreamWriter) -> None:
        due_at = time.monotonic() + self._manner.delay_s
        while (left_s := due_at - time.monotonic()) > 0:
            await asyncio.sleep(min(left_s, LOOK_EVERY_S))
        while data and not link.is_deaf:
            part = await self._allowed(link, way, data)
            writer.write(part)
            await writer.drain()
            link.sent[way] += len(part)
            data = data[len(part) :]
            if self._is_spent(link, way):
                link.reset()
                raise ConnectionResetError

    async def _allowed(self, link: _Link, way: str, data: bytes) -> bytes:
        """As much of the data as may go now; waits where it must."""
        manner = self._manner
        if manner.fault is Fault.CUT:
            return data[: max(0, manner.cut_after_bytes - link.sent[way])]
        if manner.fault is not Fault.DRIP:
            return data
        due_at = time.monotonic() + 1 / manner.drip_bytes_s
        while (left_s := due_at - time.monotonic()) > 0 and self._manner is manner:
            await asyncio.sleep(min(left_s, LOOK_EVERY_S))
        return data[:1] if self._manner is manner and not link.is_deaf else b""

    def _is_spent(self, link: _Link, way: str) -> bool:
        return self._manner.fault is Fault.CUT and link.sent[way] >= self._manner.cut_after_bytes


@contextmanager
def proxy_for(port: int) -> Iterator[FaultProxy]:
    """A proxy in front of a port of this host, closed at the end."""
    proxy = FaultProxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
