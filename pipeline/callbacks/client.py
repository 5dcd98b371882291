"""Delivers one webhook once. What the network does to it is an outcome, never an exception."""

import re
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Final

import httpcore
import httpx

from pipeline.callbacks.connection import CheckedBackend, Limits, ReplyTooLong, TlsFailed
from pipeline.callbacks.destination import Destination, ForbiddenDestination, NameNotResolved, Target
from pipeline.callbacks.schedule import LONGEST_RETRY_AFTER_S
from pipeline.deadline import utc_now

CONNECT_S: Final = 3.0
"""For the name, the connection and the encryption together."""

TOTAL_S: Final = 15.0
"""By the wall clock, from the first look-up to the last byte read."""

REPLY_LIMIT_BYTES: Final = 64 * 1024
"""Of head and body; what comes after is cut. The body is only counted: it may echo patient data."""

_BUSY_CODES: Final = frozenset({429, 502, 503, 504})
_SECONDS = re.compile(r"[0-9]{1,9}")


class DeliveryResult(StrEnum):
    """What became of one attempt."""

    DELIVERED = "delivered"
    """2xx. Whatever happened to the reply's body afterwards: the receiver has the message."""
    GONE = "gone"
    """410: the endpoint wants no more."""
    THROTTLED = "throttled"
    """429, 502, 503, 504: the receiver, or what stands before it, is overloaded."""
    REFUSED = "refused"
    """Any other status. A redirect is one: following it would leave the checked address."""
    UNREACHABLE = "unreachable"
    """No reply: name, connection, certificate, time, or a reply that is no HTTP."""
    FORBIDDEN = "forbidden"
    """The policy does not allow the address. Nothing was connected to."""


@dataclass(frozen=True, slots=True)
class DeliveryOutcome:
    """One attempt, as the delivery log keeps it. Nothing of what the receiver wrote is in it."""

    result: DeliveryResult
    duration_s: float
    status_code: int | None = None
    reply_bytes: int = 0
    """Bytes read of the reply's body."""
    retry_after_s: float | None = None
    """What a throttling receiver asked for, at most an hour."""
    reason: str | None = None
    """A code where there was no reply: the rule that forbids it, or what the connection failed at."""

    @property
    def may_be_retried(self) -> bool:
        """Whether another attempt can end otherwise."""
        return self.result in {DeliveryResult.THROTTLED, DeliveryResult.REFUSED, DeliveryResult.UNREACHABLE}


@dataclass(frozen=True, slots=True)
class _Reply:
    status_code: int
    body_bytes: int
    retry_after: str | None


# From the special to the general: the first that fits names it.
_REASONS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (NameNotResolved, NameNotResolved.code),
    (TlsFailed, "tls-failed"),
    (ReplyTooLong, "reply-too-long"),
    (httpcore.ConnectTimeout, "connect-timeout"),
    (httpcore.ConnectError, "connect-failed"),
    (httpcore.TimeoutException, "timeout"),
    (httpcore.NetworkError, "connection-lost"),
    (httpcore.ProtocolError, "bad-reply"),
)
_NO_REPLY: Final = tuple(kind for kind, _ in _REASONS)


class WebhookClient:
    """Posts bodies to checked addresses; keeps no connection, so nothing can mix two answers up.

    Parameters
    ----------
    policy
        Where it may connect to.
    ssl_context
        What it trusts, and its own certificate where endpoints ask for one. By default the public
        authorities; the environment is not looked at, proxies and certificate variables included.
    connect_timeout_s
        For the name, the connection and the encryption together.
    now
        The clock that a Retry-After date is compared with.
    """

    def __init__(
        self,
        policy: Destination,
        *,
        ssl_context: ssl.SSLContext | None = None,
        connect_timeout_s: float = CONNECT_S,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._policy = policy
        self._ssl_context = ssl_context or httpx.create_ssl_context(trust_env=False)
        self._connect_timeout_s = connect_timeout_s
        self._now = now

    def deliver(self, url: str, headers: Mapping[str, str], body: bytes, *, timeout_s: float = TOTAL_S) -> DeliveryOutcome:
        """Make one attempt; ends within `timeout_s`, whatever the receiver does."""
        began = time.monotonic()
        try:
            reply = self._post(self._policy.check_url(url), headers, body, timeout_s=timeout_s)
        except ForbiddenDestination as forbidden:
            return DeliveryOutcome(DeliveryResult.FORBIDDEN, time.monotonic() - began, reason=forbidden.rule)
        except _NO_REPLY as trouble:
            reason = next(reason for kind, reason in _REASONS if isinstance(trouble, kind))
            return DeliveryOutcome(DeliveryResult.UNREACHABLE, time.monotonic() - began, reason=reason)
        result = result_of(reply.status_code)
        return DeliveryOutcome(
            result,
            time.monotonic() - began,
            status_code=reply.status_code,
            reply_bytes=reply.body_bytes,
            retry_after_s=retry_after_s(reply.retry_after, now=self._now()) if result is DeliveryResult.THROTTLED else None,
        )

    def _post(self, target: Target, headers: Mapping[str, str], body: bytes, *, timeout_s: float) -> _Reply:
        limits = Limits.starting_now(connect_s=self._connect_timeout_s, total_s=timeout_s, reply_bytes=REPLY_LIMIT_BYTES)
        sent = {
            "Host": target.authority,
            "User-Agent": "secondread",
            "Content-Type": "application/json",
            "Connection": "close",
            **headers,
        }
        backend = CheckedBackend(self._policy, limits)
        url = httpcore.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path)
        with (
            httpcore.ConnectionPool(ssl_context=self._ssl_context, network_backend=backend) as connections,
            connections.stream("POST", url, headers=list(sent.items()), content=body) as response,
        ):
            return _Reply(response.status, _count_body(response), _header(response, b"retry-after"))


def result_of(status_code: int) -> DeliveryResult:
    """Class a reply by its status."""
    if 200 <= status_code < 300:
        return DeliveryResult.DELIVERED
    if status_code == 410:
        return DeliveryResult.GONE
    return DeliveryResult.THROTTLED if status_code in _BUSY_CODES else DeliveryResult.REFUSED


def retry_after_s(value: str | None, *, now: datetime) -> float | None:
    """Read a Retry-After header: seconds, or a date (RFC 9110 10.2.3); between 0 and an hour, None if unreadable."""
    text = (value or "").strip()
    if _SECONDS.fullmatch(text):
        asked_s = float(text)
    else:
        try:
            moment = parsedate_to_datetime(text)
        except ValueError:
            return None
        # "-0000" gives a naive moment; RFC 9110 dates are UTC whatever they say.
        asked_s = (moment.replace(tzinfo=moment.tzinfo or UTC) - now).total_seconds()
    return min(max(asked_s, 0.0), LONGEST_RETRY_AFTER_S)


def _count_body(response: httpcore.Response) -> int:
    """Read and forget the body; a cut, late or broken one changes nothing about the status that came before."""
    read_bytes = 0
    try:
        for chunk in response.iter_stream():
            read_bytes += len(chunk)
    except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError):
        return read_bytes
    return read_bytes


def _header(response: httpcore.Response, name: bytes) -> str | None:
    return next((value.decode("latin-1") for key, value in response.headers if key.lower() == name), None)
