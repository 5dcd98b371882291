"""Connections of one attempt: to a checked address, inside a wall clock, with a bounded reply."""

import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpcore

from pipeline.callbacks.destination import Destination
from pipeline.callbacks.networks import Address

Clock = Callable[[], float]


class TlsFailed(httpcore.ConnectError):
    """No encrypted connection: a bad or foreign certificate, or no common version."""


class ReplyTooLong(httpcore.ReadError):
    """The receiver sent more than we are willing to read."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one attempt may take."""

    connect_ends_at: float
    """When looking up, connecting and encrypting must be done, on `clock`."""
    ends_at: float
    """When everything must be done."""
    reply_bytes: int
    """Head and body of the reply together."""
    clock: Clock = time.monotonic

    @classmethod
    def starting_now(cls, *, connect_s: float, total_s: float, reply_bytes: int) -> "Limits":
        """The limits of an attempt that begins now."""
        now = time.monotonic()
        return cls(now + min(connect_s, total_s), now + total_s, reply_bytes)

    def connect_left_s(self) -> float:
        """Seconds left for connecting.

        Raises
        ------
        TimeoutError
            None are: nothing may be begun any more.
        """
        return self._left_s(self.connect_ends_at)

    def left_s(self) -> float:
        """Seconds left for all of it; raises like `connect_left_s`."""
        return self._left_s(self.ends_at)

    def _left_s(self, ends_at: float) -> float:
        left_s = ends_at - self.clock()
        if left_s <= 0:
            raise TimeoutError
        return left_s


class TimedStream(httpcore.NetworkStream):
    """A socket whose every wait ends at one moment, however the bytes drip.

    A timeout for each read would begin anew with each byte, so the ones that the caller passes are not looked at.
    """

    def __init__(self, connected: socket.socket, limits: Limits) -> None:
        self._socket = connected
        self._limits = limits
        self._unread_bytes = limits.reply_bytes

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read what has come, up to the limit of the whole reply."""
        if self._unread_bytes <= 0:
            raise ReplyTooLong
        with _named(httpcore.ReadTimeout, httpcore.ReadError):
            self._socket.settimeout(self._limits.left_s())
            received = self._socket.recv(min(max_bytes, self._unread_bytes))
        self._unread_bytes -= len(received)
        return received

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all of it."""
        unsent = memoryview(buffer)
        with _named(httpcore.WriteTimeout, httpcore.WriteError):
            while unsent:
                self._socket.settimeout(self._limits.left_s())
                unsent = unsent[self._socket.send(unsent) :]

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def start_tls(self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None) -> "TimedStream":
        """Encrypt; the name goes into SNI and is what the certificate must carry."""
        try:
            with _named(httpcore.ConnectTimeout, TlsFailed):
                self._socket.settimeout(self._limits.connect_left_s())
                encrypted = ssl_context.wrap_socket(self._socket, server_hostname=server_hostname)
        except httpcore.NetworkError:
            self.close()
            raise
        return TimedStream(encrypted, self._limits)


class CheckedBackend(httpcore.NetworkBackend):
    """Opens connections to addresses that the policy has checked, never to a name."""

    def __init__(self, policy: Destination, limits: Limits) -> None:
        self._policy = policy
        self._limits = limits

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> TimedStream:
        """Resolve and check once, then connect to one of exactly these addresses.

        Raises
        ------
        ForbiddenDestination, NameNotResolved
            See `Destination.resolve`. No socket was opened.
        """
        with _named(httpcore.ConnectTimeout, httpcore.ConnectError):
            addresses = self._policy.resolve(host, port, timeout_s=self._limits.connect_left_s())
            connected = self._connect(addresses, port)
        # Head and body go out as two writes: without this the second waits for the first one's acknowledgement.
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return TimedStream(connected, self._limits)

    def _connect(self, addresses: tuple[Address, ...], port: int) -> socket.socket:
        for untried_count in range(len(addresses), 1, -1):
            # An even share for each, so that a dead first address leaves time for the next.
            share_s = self._limits.connect_left_s() / untried_count
            try:
                return socket.create_connection((str(addresses[-untried_count]), port), timeout=share_s)
            except OSError:
                continue
        return socket.create_connection((str(addresses[-1]), port), timeout=self._limits.connect_left_s())


@contextmanager
def _named(late: type[Exception], failed: type[Exception]) -> Iterator[None]:
    """Say in the HTTP library's words what the socket said in the system's."""
    try:
        yield
    except TimeoutError as error:
        raise late from error
    except OSError as error:
        raise failed from error
